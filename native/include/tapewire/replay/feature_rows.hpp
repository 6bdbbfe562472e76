// The rows that a loop makes, as columns, and their Arrow form: timestamp_ns, symbol, then a double
// for each feature; for books, their best levels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/arrow.hpp"
#include "tapewire/replay/level_rows.hpp"

namespace tapewire::replay {

class FeatureRows {
  public:
    explicit FeatureRows(std::size_t features, const LevelsWanted& wanted = {})
        : values(features), valid(features) {
        if (wanted.levels != 0) levels.emplace(wanted);
    }

    std::vector<std::int64_t> time_ns;
    std::vector<std::uint32_t> market;             // Market::index
    std::vector<std::vector<double>> values;       // one column each; 0 where it is null
    std::vector<std::vector<std::uint8_t>> valid;  // one byte each
    std::optional<LevelRows> levels;               // the same number of rows

    std::size_t size() const noexcept { return time_ns.size(); }
    void push(std::int64_t time, std::uint32_t index, const double* row, const std::uint8_t* known);
};

// Names of instruments by Market::index. Without venues the column is absent.
struct MarketNames {
    std::vector<std::string> symbols;
    bool with_venues = false;
    std::vector<std::string> venues;
};

// Rows and names stay in memory until the consumer releases the last column.
void export_rows_schema(const std::vector<std::string>& features, const LevelsWanted& wanted,
                        bool with_venues, ArrowSchema* out);
void export_rows(std::shared_ptr<const FeatureRows> rows, const MarketNames& names,
                 ArrowArray* out);

}  // namespace tapewire::replay
