// Exports a batch to Arrow: the C data interface over existing columns, with the payloads as a
// binary-view column whose buffers are the mapped segments themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tapewire/cursor.hpp"

// The Arrow C data and stream interfaces; guarded as their specification requires, since other
// headers define them too.
extern "C" {
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    ArrowSchema** children;
    ArrowSchema* dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
    int (*get_next)(ArrowArrayStream*, ArrowArray*);
    const char* (*get_last_error)(ArrowArrayStream*);
    void (*release)(ArrowArrayStream*);
    void* private_data;
};
#endif
}

namespace tapewire {

using ColumnsRef = std::shared_ptr<const BatchColumns>;

// A struct of seq uint64, timestamp_ns int64, type_id uint16, flags uint16, payload binary_view
// and, for a fan-in, source as a dictionary of text.
void export_schema(const ColumnsRef& columns, ArrowSchema* out);
// Records [from, to) of the batch. Only the 16-byte views (with payloads of up to 12 bytes inline,
// as Arrow requires) are created; the mappings live until the consumer releases the array.
void export_array(const ColumnsRef& columns, std::size_t from, std::size_t to, ArrowArray* out);
// The same as a stream of one chunk.
void export_stream(const ColumnsRef& columns, std::size_t from, std::size_t to,
                   ArrowArrayStream* out);

// Import: one payload per row from a column of binary, large binary, binary view, fixed-size binary
// or text, or from the column "payload" of a struct, such as a batch. Nothing is copied: the
// pointers are valid until the array is released.
struct ArrowRows {
    std::vector<const std::byte*> pointers;
    std::vector<std::uint64_t> lengths;

    // Adds the rows of one array. Throws invalid_option for another type and for a null row.
    void add(const ArrowSchema& schema, const ArrowArray& array);
};

}  // namespace tapewire
