#include "tapewire/replay/feature_rows.hpp"

#include <utility>

#include "tapewire/error.hpp"

namespace tapewire::replay {

namespace {

constexpr std::int64_t kNullable = 2;  // ARROW_FLAG_NULLABLE
constexpr std::size_t kFixed = 2;      // timestamp_ns, symbol

struct SchemaMemory {
    std::vector<std::string> names;
    std::vector<ArrowSchema> fields;
    std::vector<ArrowSchema*> pointers;
};

// A child may be moved out of its parent and outlive it, so each has a share of what it needs.
struct ChildSchema {
    std::string name;
};

void release_child_schema(ArrowSchema* schema) {
    delete static_cast<ChildSchema*>(schema->private_data);
    schema->release = nullptr;
}

void release_schema(ArrowSchema* schema) {
    auto* memory = static_cast<SchemaMemory*>(schema->private_data);
    for (ArrowSchema& field : memory->fields) {
        if (field.release != nullptr) field.release(&field);
    }
    delete memory;
    schema->release = nullptr;
}

ArrowSchema child_schema(const std::string& name, const char* format, std::int64_t flags) {
    auto memory = std::make_unique<ChildSchema>(ChildSchema{name});
    ArrowSchema schema{};
    schema.format = format;
    schema.name = memory->name.c_str();
    schema.flags = flags;
    schema.release = release_child_schema;
    schema.private_data = memory.release();
    return schema;
}

struct ColumnMemory {
    std::shared_ptr<const FeatureRows> rows;
    std::vector<std::uint8_t> bits;
    std::vector<std::int32_t> offsets;
    std::string text;
    std::vector<const void*> buffers;
};

void release_column(ArrowArray* array) {
    delete static_cast<ColumnMemory*>(array->private_data);
    array->release = nullptr;
}

struct ArrayMemory {
    std::vector<ArrowArray> columns;
    std::vector<ArrowArray*> pointers;
    const void* buffers[1] = {nullptr};

    ArrayMemory() = default;
    ArrayMemory(const ArrayMemory&) = delete;
    ArrayMemory& operator=(const ArrayMemory&) = delete;
    ~ArrayMemory() {  // those that a consumer moved out have no release any more
        for (ArrowArray& column : columns) {
            if (column.release != nullptr) column.release(&column);
        }
    }
};

void release_array(ArrowArray* array) {
    delete static_cast<ArrayMemory*>(array->private_data);
    array->release = nullptr;
}

ArrowArray finished(std::unique_ptr<ColumnMemory> memory, std::int64_t nulls) {
    ArrowArray array{};
    array.length = static_cast<std::int64_t>(memory->rows->size());
    array.null_count = nulls;
    array.n_buffers = static_cast<std::int64_t>(memory->buffers.size());
    array.buffers = memory->buffers.data();
    array.release = release_column;
    array.private_data = memory.release();
    return array;
}

ArrowArray times(const std::shared_ptr<const FeatureRows>& rows) {
    auto memory = std::make_unique<ColumnMemory>();
    memory->rows = rows;
    memory->buffers = {nullptr, rows->time_ns.data()};
    return finished(std::move(memory), 0);
}

ArrowArray texts(const std::shared_ptr<const FeatureRows>& rows,
                 const std::vector<std::string>& symbols) {
    auto memory = std::make_unique<ColumnMemory>();
    memory->rows = rows;
    memory->offsets.reserve(rows->size() + 1);
    memory->offsets.push_back(0);
    for (const std::uint32_t market : rows->market) {
        memory->text += symbols.at(market);
        memory->offsets.push_back(static_cast<std::int32_t>(memory->text.size()));
    }
    memory->buffers = {nullptr, memory->offsets.data(), memory->text.data()};
    return finished(std::move(memory), 0);
}

ArrowArray doubles(const std::shared_ptr<const FeatureRows>& rows, std::size_t column) {
    auto memory = std::make_unique<ColumnMemory>();
    memory->rows = rows;
    const std::vector<std::uint8_t>& valid = rows->valid[column];
    memory->bits.assign((valid.size() + 7) / 8, 0);
    std::int64_t nulls = 0;
    for (std::size_t i = 0; i < valid.size(); ++i) {
        nulls += valid[i] == 0;
        memory->bits[i / 8] |= static_cast<std::uint8_t>(valid[i] << (i % 8));
    }
    memory->buffers = {nulls == 0 ? nullptr : memory->bits.data(), rows->values[column].data()};
    return finished(std::move(memory), nulls);
}

}  // namespace

void FeatureRows::push(std::int64_t time, std::uint32_t index, const double* row,
                       const std::uint8_t* known) {
    time_ns.push_back(time);
    market.push_back(index);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i].push_back(row[i]);
        valid[i].push_back(known[i]);
    }
}

void export_rows_schema(const std::vector<std::string>& features, ArrowSchema* out) {
    auto memory = std::make_unique<SchemaMemory>();
    memory->fields.reserve(features.size() + kFixed);
    memory->fields.push_back(child_schema("timestamp_ns", "l", 0));
    memory->fields.push_back(child_schema("symbol", "u", 0));
    for (const std::string& name : features)
        memory->fields.push_back(child_schema(name, "g", kNullable));
    for (ArrowSchema& field : memory->fields) memory->pointers.push_back(&field);
    *out = {};
    out->format = "+s";
    out->name = "";
    out->n_children = static_cast<std::int64_t>(memory->fields.size());
    out->children = memory->pointers.data();
    out->release = release_schema;
    out->private_data = memory.release();
}

void export_rows(std::shared_ptr<const FeatureRows> rows, const std::vector<std::string>& symbols,
                 ArrowArray* out) {
    auto memory = std::make_unique<ArrayMemory>();
    memory->columns.reserve(rows->values.size() + kFixed);
    memory->columns.push_back(times(rows));
    memory->columns.push_back(texts(rows, symbols));
    for (std::size_t i = 0; i < rows->values.size(); ++i)
        memory->columns.push_back(doubles(rows, i));
    for (ArrowArray& column : memory->columns) memory->pointers.push_back(&column);
    *out = {};
    out->length = static_cast<std::int64_t>(rows->size());
    out->n_buffers = 1;
    out->buffers = memory->buffers;
    out->n_children = static_cast<std::int64_t>(memory->columns.size());
    out->children = memory->pointers.data();
    out->release = release_array;
    out->private_data = memory.release();
}

}  // namespace tapewire::replay
