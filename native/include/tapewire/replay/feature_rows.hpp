// Rows of features as columns, and as Arrow sees them: timestamp_ns, symbol, then a double for each feature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tapewire/arrow.hpp"

namespace tapewire::replay {

class FeatureRows {
  public:
    explicit FeatureRows(std::size_t features) : values(features), valid(features) {}

    std::vector<std::int64_t> time_ns;
    std::vector<std::uint32_t> market;             // Market::index
    std::vector<std::vector<double>> values;       // a column each; 0 where it is null
    std::vector<std::vector<std::uint8_t>> valid;  // a byte each

    std::size_t size() const noexcept { return time_ns.size(); }
    void push(std::int64_t time, std::uint32_t index, const double* row, const std::uint8_t* known);
};

// `symbols` by Market::index. Rows and names are kept until the consumer lets go of the last column.
void export_rows_schema(const std::vector<std::string>& features, ArrowSchema* out);
void export_rows(std::shared_ptr<const FeatureRows> rows, const std::vector<std::string>& symbols,
                 ArrowArray* out);

}  // namespace tapewire::replay
