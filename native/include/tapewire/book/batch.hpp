// Applies the columns of a batch to a book: loops that Python calls without the GIL.
//
// Records of other types than BookEvent are skipped. `done` is the number of records consumed, also
// when an exception is thrown: it includes the record that threw, so a caller can resume after it.
#pragma once

#include <cstddef>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/cursor.hpp"

namespace tapewire::book {

// Applies records [from, to). Returns how many events changed the book.
std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done);

enum class RowPer { event, level };

// The same; returns the best of both sides after each event or each level (see Book::apply).
std::vector<TopRow> tops(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                         RowPer per, std::size_t& done);

}  // namespace tapewire::book
