#include "tapewire/arrow.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tapewire/arrow_memory.hpp"
#include "tapewire/error.hpp"

namespace tapewire {

namespace {

constexpr std::size_t kColumns = 6;  // the last one in a fan-in only

struct Field {
    const char* name;
    const char* format;
};

constexpr std::array<Field, kColumns> kFields = {{
    {"seq", "L"},
    {"timestamp_ns", "l"},
    {"type_id", "S"},
    {"flags", "S"},
    {"payload", "vz"},
    {"source", "S"},  // a dictionary of names
}};

std::size_t columns_of(const BatchColumns& batch) noexcept {
    return batch.source_names ? kColumns : kColumns - 1;
}

// One entry of a binary-view column.
struct View {
    std::int32_t length;
    union {
        char inlined[12];
        struct {
            char prefix[4];
            std::int32_t buffer;
            std::int32_t offset;
        } far;
    };
};
static_assert(sizeof(View) == 16);

// A child may be moved out of its parent and outlive it, so each one holds the columns itself.
struct ColumnMemory {
    ColumnsRef columns;
    std::vector<View> views;
    std::vector<std::int64_t> far_lengths;
    std::vector<const void*> buffers;
    ArrowChildren<ArrowArray> dictionary{0};
};

void finish_column(std::unique_ptr<ColumnMemory> memory, std::size_t length, ArrowArray* out) {
    *out = {};
    out->length = static_cast<std::int64_t>(length);
    out->n_buffers = static_cast<std::int64_t>(memory->buffers.size());
    out->buffers = memory->buffers.data();
    if (memory->dictionary.size() != 0) out->dictionary = memory->dictionary[0];
    own(out, std::move(memory));
}

void export_numbers(const ColumnsRef& columns, const void* data, std::size_t length,
                    ArrowArray* out) {
    auto memory = std::make_unique<ColumnMemory>();
    memory->columns = columns;
    memory->buffers = {nullptr, data};
    finish_column(std::move(memory), length, out);
}

void export_payloads(const ColumnsRef& columns, std::size_t from, std::size_t to, ArrowArray* out) {
    auto memory = std::make_unique<ColumnMemory>();
    memory->columns = columns;
    memory->views.resize(to - from);
    const auto& owners = columns->owners;
    // The mapping of the last payload, for each source of a fan-in, since the sources alternate.
    std::vector<std::size_t> last(columns->source_names ? columns->source_names->size() : 1);
    std::size_t owner = 0;
    const auto inside = [&](const std::byte* at, std::uint32_t length) {
        const std::byte* base = owners[owner]->data();
        return at >= base && at + length <= base + owners[owner]->size();
    };
    for (std::size_t i = from; i < to; ++i) {
        const std::byte* payload = columns->payload[i];
        const std::uint32_t length = columns->payload_len[i];
        View& view = memory->views[i - from];
        view = {};
        view.length = static_cast<std::int32_t>(length);
        if (length <= sizeof view.inlined) {
            std::memcpy(view.inlined, payload, length);
            continue;
        }
        std::size_t& begin = last[columns->source ? columns->source[i] : 0];
        owner = begin;
        while (!inside(payload, length)) owner = owner + 1 < owners.size() ? owner + 1 : 0;
        begin = owner;
        std::memcpy(view.far.prefix, payload, sizeof view.far.prefix);
        view.far.buffer = static_cast<std::int32_t>(owner);
        view.far.offset = static_cast<std::int32_t>(payload - owners[owner]->data());
    }
    memory->buffers = {nullptr, memory->views.data()};
    for (const MappingRef& map : owners) {
        memory->buffers.push_back(map->data());
        memory->far_lengths.push_back(static_cast<std::int64_t>(map->size()));
    }
    memory->buffers.push_back(memory->far_lengths.data());
    finish_column(std::move(memory), to - from, out);
}

// The names as Arrow text, and their memory.
struct NamesMemory {
    std::vector<std::int32_t> offsets{0};
    std::string text;
    std::array<const void*, 3> buffers{};
};

void export_names(const std::vector<std::string>& names, ArrowArray* out) {
    auto memory = std::make_unique<NamesMemory>();
    for (const std::string& name : names) {
        memory->text += name;
        memory->offsets.push_back(static_cast<std::int32_t>(memory->text.size()));
    }
    memory->buffers = {nullptr, memory->offsets.data(), memory->text.data()};
    *out = {};
    out->length = static_cast<std::int64_t>(names.size());
    out->n_buffers = 3;
    out->buffers = memory->buffers.data();
    own(out, std::move(memory));
}

void export_sources(const ColumnsRef& columns, std::size_t from, std::size_t length,
                    ArrowArray* out) {
    auto memory = std::make_unique<ColumnMemory>(ColumnMemory{
        columns, {}, {}, {nullptr, columns->source.get() + from}, ArrowChildren<ArrowArray>(1)});
    export_names(*columns->source_names, memory->dictionary[0]);
    finish_column(std::move(memory), length, out);
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
    throw Error(Errc::invalid_option, what, {}, -1, hint);
}

bool is_null(const ArrowArray& array, std::int64_t row) {
    const auto* bits = static_cast<const std::uint8_t*>(array.buffers[0]);
    const std::int64_t at = array.offset + row;
    return bits != nullptr && ((bits[at / 8] >> (at % 8)) & 1) == 0;
}

template <class Offset>
void add_by_offsets(const ArrowArray& array, ArrowRows& rows) {
    const auto* offsets = static_cast<const Offset*>(array.buffers[1]) + array.offset;
    const auto* data = static_cast<const std::byte*>(array.buffers[2]);
    for (std::int64_t i = 0; i < array.length; ++i) {
        if (offsets[i] < 0 || offsets[i + 1] < offsets[i]) {
            refuse("Arrow offsets must rise: row=" + std::to_string(rows.pointers.size()), "");
        }
        rows.pointers.push_back(data + offsets[i]);
        rows.lengths.push_back(static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]));
    }
}

void add_by_views(const ArrowArray& array, ArrowRows& rows) {
    const auto* views = static_cast<const View*>(array.buffers[1]) + array.offset;
    const std::int64_t far_buffers = array.n_buffers - 3;  // validity, views, …, lengths
    for (std::int64_t i = 0; i < array.length; ++i) {
        const View& view = views[i];
        const bool inlined = view.length <= static_cast<std::int32_t>(sizeof view.inlined);
        if (view.length < 0 ||
            (!inlined &&
             (view.far.buffer < 0 || view.far.buffer >= far_buffers || view.far.offset < 0))) {
            refuse("Arrow view is out of range: row=" + std::to_string(rows.pointers.size()), "");
        }
        rows.pointers.push_back(
            inlined ? reinterpret_cast<const std::byte*>(view.inlined)
                    : static_cast<const std::byte*>(array.buffers[2 + view.far.buffer]) +
                          view.far.offset);
        rows.lengths.push_back(static_cast<std::uint64_t>(view.length));
    }
}

void add_fixed(const ArrowArray& array, std::int64_t bytes, ArrowRows& rows) {
    const auto* data = static_cast<const std::byte*>(array.buffers[1]) + array.offset * bytes;
    for (std::int64_t i = 0; i < array.length; ++i) {
        rows.pointers.push_back(data + i * bytes);
        rows.lengths.push_back(static_cast<std::uint64_t>(bytes));
    }
}

// The payload column of a struct, such as a batch of records.
void add_struct(const ArrowSchema& schema, const ArrowArray& array, ArrowRows& rows) {
    for (std::int64_t i = 0; i < schema.n_children && i < array.n_children; ++i) {
        if (schema.children[i]->name == nullptr ||
            std::string_view(schema.children[i]->name) != "payload") {
            continue;
        }
        ArrowArray column = *array.children[i];  // the same memory, sliced as the struct is
        if (array.offset < 0 || array.length > column.length - array.offset) {
            refuse("Arrow column is shorter than its struct: payload=" +
                       std::to_string(column.length) + ", rows=" + std::to_string(array.length),
                   "");
        }
        column.offset += array.offset;
        column.length = array.length;
        rows.add(*schema.children[i], column);
        return;
    }
    refuse("an Arrow struct must have a payload column: name=payload",
           "pass one column of payloads, or a structured numpy array");
}

struct StreamMemory {
    ColumnsRef columns;
    std::size_t from;
    std::size_t to;
    bool given = false;
};

template <class Work>
int without_throwing(Work work) noexcept {
    try {
        work();
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

}  // namespace

void export_schema(const ColumnsRef& columns, ArrowSchema* out) {
    // Format and names are literals: a field needs memory only for its dictionary.
    const auto field = [](const char* name, const char* format, ArrowSchema* into) {
        *into = {};
        into->format = format;
        into->name = name;
        into->release = [](ArrowSchema* released) { released->release = nullptr; };
    };
    ArrowChildren<ArrowSchema> fields(columns_of(*columns));
    for (std::size_t i = 0; i < fields.size(); ++i)
        field(kFields[i].name, kFields[i].format, fields[i]);
    if (columns->source_names) {
        auto names = std::make_unique<ArrowChildren<ArrowSchema>>(1);
        field("", "u", (*names)[0]);
        ArrowSchema* const source = fields[fields.size() - 1];
        source->dictionary = (*names)[0];
        own(source, std::move(names));
    }
    export_struct_schema(std::move(fields), out);
}

void export_array(const ColumnsRef& columns, std::size_t from, std::size_t to, ArrowArray* out) {
    ArrowChildren<ArrowArray> made(columns_of(*columns));
    const std::size_t length = to - from;
    export_numbers(columns, columns->seq.get() + from, length, made[0]);
    export_numbers(columns, columns->timestamp_ns.get() + from, length, made[1]);
    export_numbers(columns, columns->type_id.get() + from, length, made[2]);
    export_numbers(columns, columns->flags.get() + from, length, made[3]);
    export_payloads(columns, from, to, made[4]);
    if (columns->source_names) export_sources(columns, from, length, made[5]);
    export_struct(std::move(made), length, out);
}

void export_stream(const ColumnsRef& columns, std::size_t from, std::size_t to,
                   ArrowArrayStream* out) {
    *out = {};
    out->get_schema = [](ArrowArrayStream* stream, ArrowSchema* schema) {
        const auto* memory = static_cast<StreamMemory*>(stream->private_data);
        return without_throwing([&] { export_schema(memory->columns, schema); });
    };
    out->get_next = [](ArrowArrayStream* stream, ArrowArray* array) {
        auto* memory = static_cast<StreamMemory*>(stream->private_data);
        *array = {};  // a released array ends the stream
        if (memory->given) return 0;
        memory->given = true;
        return without_throwing(
            [&] { export_array(memory->columns, memory->from, memory->to, array); });
    };
    out->get_last_error = [](ArrowArrayStream*) -> const char* { return "out of memory"; };
    out->release = [](ArrowArrayStream* stream) {
        delete static_cast<StreamMemory*>(stream->private_data);
        stream->release = nullptr;
    };
    out->private_data = new StreamMemory{columns, from, to};
}

void ArrowRows::add(const ArrowSchema& schema, const ArrowArray& array) {
    const std::string format = schema.format;
    if (array.null_count != 0) {
        for (std::int64_t i = 0; i < array.length; ++i) {
            if (is_null(array, i)) {
                // Of all rows: earlier chunks have been added already.
                const std::size_t row = pointers.size() + static_cast<std::size_t>(i);
                refuse("a record cannot be null: row=" + std::to_string(row),
                       "drop or fill the nulls");
            }
        }
    }
    if (array.length == 0) return;
    if (format == "z" || format == "u") {
        add_by_offsets<std::int32_t>(array, *this);
    } else if (format == "Z" || format == "U") {
        add_by_offsets<std::int64_t>(array, *this);
    } else if (format == "vz" || format == "vu") {
        add_by_views(array, *this);
    } else if (format.starts_with("w:")) {
        add_fixed(array, std::stoll(format.substr(2)), *this);
    } else if (format == "+s") {
        add_struct(schema, array, *this);
    } else {
        refuse("Arrow rows must be binary, binary view or fixed-size binary: format=" + format,
               "pass one column of payloads, or a structured numpy array");
    }
}

}  // namespace tapewire
