// The rows that a loop makes, as columns, and their Arrow form: timestamp_ns, symbol, then a double
// for each feature; for books, their best levels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tapewire/arrow.hpp"
#include "tapewire/replay/level_rows.hpp"

namespace tapewire::replay {

// All columns grow at once, so that a row costs one test of the capacity and a store for each cell.
class FeatureRows {
  public:
    explicit FeatureRows(std::size_t features, const LevelsWanted& wanted = {})
        : features_(features) {
        if (wanted.levels != 0) levels.emplace(wanted);
    }

    std::optional<LevelRows> levels;  // the same number of rows

    std::size_t size() const noexcept { return size_; }
    std::size_t features() const noexcept { return features_; }
    std::span<const std::int64_t> time_ns() const noexcept { return {time_ns_.get(), size_}; }
    std::span<const std::uint32_t> market() const noexcept {  // Market::index
        return {market_.get(), size_};
    }
    // 0 where it is null.
    std::span<const double> values(std::size_t feature) const noexcept {
        return {values_.get() + feature * capacity_, size_};
    }
    std::span<const std::uint8_t> valid(std::size_t feature) const noexcept {  // 0: null
        return {valid_.get() + feature * capacity_, size_};
    }

    // The cells of a row: that of feature i is at i * stride.
    struct Cells {
        double* values;
        std::uint8_t* valid;
        std::size_t stride;
    };
    // Where push() expects the values of the new row.
    Cells next_row() {
        if (size_ == capacity_) [[unlikely]]
            grow();
        return {values_.get() + size_, valid_.get() + size_, capacity_};
    }
    void push(std::int64_t time_ns, std::uint32_t market) noexcept {
        time_ns_[size_] = time_ns;
        market_[size_] = market;
        ++size_;
    }

  private:
    void grow();

    std::size_t features_;
    std::size_t size_ = 0, capacity_ = 0;
    std::unique_ptr<std::int64_t[]> time_ns_;
    std::unique_ptr<std::uint32_t[]> market_;
    std::unique_ptr<double[]> values_;  // a column after the other, `capacity_` entries each
    std::unique_ptr<std::uint8_t[]> valid_;
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
