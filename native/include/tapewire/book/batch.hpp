// Books over the columns of a batch: the loops that Python hands over without the GIL.
//
// Records of other types than BookEvent are passed over. `done` says how many records were taken,
// also when something is thrown: with the one that threw, so that who goes on does so behind it.
#pragma once

#include <cstddef>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/cursor.hpp"

namespace tapewire::book {

// Records [from, to). How many events changed the book.
std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done);

enum class RowPer { event, level };

// The same, with the best of both sides after each event, or after each level (see Book::apply).
std::vector<TopRow> tops(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                         RowPer per, std::size_t& done);

}  // namespace tapewire::book
