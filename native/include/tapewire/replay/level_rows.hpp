// The best levels of books, one row each: the levels of all rows are concatenated, as in Arrow's
// lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tapewire/book/book.hpp"

namespace tapewire::replay {

struct LevelsWanted {
    std::uint32_t levels = 0;  // of each side, at most; 0: none
    bool orders = false;       // also the number of orders of each
};

class LevelRows {
  public:
    explicit LevelRows(const LevelsWanted& wanted) : wanted_(wanted), scratch_(wanted.levels) {}

    struct Side {
        std::vector<std::int64_t> price, size, orders;
        std::vector<std::int32_t> ends{0};  // of each row's levels, after an initial 0
    };
    // If the book is null or untrusted, its row has no levels.
    struct Head {
        std::optional<std::uint64_t> seq;      // of the record that caused it
        std::uint8_t price_scale, size_scale;  // if there is no book
    };
    void push(const Head& head, const book::Book* book);

    const LevelsWanted& wanted() const noexcept { return wanted_; }

    std::vector<std::uint64_t> seq;  // 0 where it is null
    std::vector<std::uint8_t> has_seq, trusted;
    std::vector<std::int32_t> price_scale, size_scale;
    Side bids, asks;

  private:
    void push_side(const book::Book* book, format::Side which, Side& side);

    LevelsWanted wanted_;
    std::vector<book::LevelRow> scratch_;
};

}  // namespace tapewire::replay
