#include "tapewire/replay/feature_rows.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "tapewire/arrow_memory.hpp"

namespace tapewire::replay {

namespace {

using RowsRef = std::shared_ptr<const FeatureRows>;

// ---- schema -------------------------------------------------------------------------------------

constexpr std::int64_t kNullable = 2;  // ARROW_FLAG_NULLABLE

struct Field {
    std::string name;
    const char* format;
    bool nullable = false;
};

std::vector<Field> fields_of(const std::vector<std::string>& features, const LevelsWanted& wanted,
                             bool with_venues) {
    std::vector<Field> fields = {{"timestamp_ns", "l"}};
    if (with_venues) fields.push_back({"venue", "u"});
    fields.push_back({"symbol", "u"});
    for (const std::string& name : features) fields.push_back({name, "g", true});
    if (wanted.levels == 0) return fields;
    for (const Field& field : {Field{"seq", "L", true}, Field{"trusted", "b"},
                               Field{"price_scale", "i"}, Field{"size_scale", "i"}})
        fields.push_back(field);
    for (const std::string side : {"bid", "ask"}) {
        fields.push_back({side + "_prices", "+l"});
        fields.push_back({side + "_sizes", "+l"});
        if (wanted.orders) fields.push_back({side + "_orders", "+l"});
    }
    return fields;
}

struct FieldMemory {
    std::string name;
    ArrowChildren<ArrowSchema> items;
};

void export_field(const Field& field, ArrowSchema* out) {
    const std::size_t items = field.format[0] == '+' ? 1 : 0;  // for a list
    std::unique_ptr<FieldMemory> memory(
        new FieldMemory{field.name, ArrowChildren<ArrowSchema>(items)});
    if (items != 0) export_field({"item", "l"}, memory->items[0]);
    *out = {};
    out->format = field.format;
    out->name = memory->name.c_str();
    out->flags = field.nullable ? kNullable : 0;
    out->n_children = static_cast<std::int64_t>(items);
    if (items != 0) out->children = memory->items.pointers();
    own(out, std::move(memory));
}

// ---- columns ------------------------------------------------------------------------------------

struct ColumnMemory {
    RowsRef rows;
    std::vector<std::uint8_t> bits;
    std::vector<std::int32_t> offsets;
    std::string text;
    std::vector<const void*> buffers;
    ArrowChildren<ArrowArray> items;
};

std::unique_ptr<ColumnMemory> memory_of(const RowsRef& rows, std::size_t items = 0) {
    return std::unique_ptr<ColumnMemory>(
        new ColumnMemory{rows, {}, {}, {}, {}, ArrowChildren<ArrowArray>(items)});
}

void finish(std::unique_ptr<ColumnMemory> memory, std::size_t length, std::int64_t nulls,
            ArrowArray* out) {
    *out = {};
    out->length = static_cast<std::int64_t>(length);
    out->null_count = nulls;
    out->n_buffers = static_cast<std::int64_t>(memory->buffers.size());
    out->buffers = memory->buffers.data();
    out->n_children = static_cast<std::int64_t>(memory->items.size());
    if (memory->items.size() != 0) out->children = memory->items.pointers();
    own(out, std::move(memory));
}

// Packs bytes of 0 or 1 into bits; returns how many are 0.
std::int64_t pack(std::span<const std::uint8_t> bytes, std::vector<std::uint8_t>& bits) {
    // These products move the bit of byte i to bit 56 + i, and the sum of the bytes to bit 56.
    constexpr std::uint64_t kGather = 0x0102'0408'1020'4080, kSum = 0x0101'0101'0101'0101;
    bits.resize((bytes.size() + 7) / 8);
    std::uint64_t ones = 0;
    const auto pack_eight = [&](std::size_t from, std::size_t n) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, bytes.data() + from, n);
        bits[from / 8] = static_cast<std::uint8_t>((eight * kGather) >> 56);
        ones += (eight * kSum) >> 56;
    };
    const std::size_t rest = bytes.size() % 8, even = bytes.size() - rest;
    for (std::size_t i = 0; i < even; i += 8) pack_eight(i, 8);
    if (rest != 0) pack_eight(even, rest);
    return static_cast<std::int64_t>(bytes.size() - ones);
}

void export_numbers(const RowsRef& rows, const void* data, std::size_t length, ArrowArray* out) {
    auto memory = memory_of(rows);
    memory->buffers = {nullptr, data};
    finish(std::move(memory), length, 0, out);
}

void export_nullable(const RowsRef& rows, const void* data, std::span<const std::uint8_t> valid,
                     ArrowArray* out) {
    auto memory = memory_of(rows);
    const std::int64_t nulls = pack(valid, memory->bits);
    memory->buffers = {nulls == 0 ? nullptr : memory->bits.data(), data};
    finish(std::move(memory), valid.size(), nulls, out);
}

void export_flags(const RowsRef& rows, const std::vector<std::uint8_t>& flags, ArrowArray* out) {
    auto memory = memory_of(rows);
    pack(flags, memory->bits);
    memory->buffers = {nullptr, memory->bits.data()};
    finish(std::move(memory), flags.size(), 0, out);
}

// Repeats the text up to `bytes`, which is a multiple of its size: each copy is twice as long as the
// one before.
void fill(char* to, std::size_t bytes, std::string_view text) {
    std::size_t done = std::min(bytes, text.size());
    std::memcpy(to, text.data(), done);
    for (std::size_t n = 0; done < bytes; done += n) {
        n = std::min(done, bytes - done);
        std::memcpy(to + done, to, n);
    }
}

// Writes a name for each row; most rows have that of the row before.
void export_texts(const RowsRef& rows, const std::vector<std::string>& names, ArrowArray* out) {
    auto memory = memory_of(rows);
    const std::span<const std::uint32_t> market = rows->market();
    std::size_t bytes = 0;
    for (const std::uint32_t at : market) bytes += names.at(at).size();
    memory->text.resize(bytes);
    memory->offsets.resize(market.size() + 1);
    std::size_t end = 0;
    for (std::size_t row = 0; row < market.size();) {
        const std::string& name = names[market[row]];
        const std::size_t begin = end;
        for (const std::uint32_t same = market[row]; row < market.size() && market[row] == same;)
            memory->offsets[++row] = static_cast<std::int32_t>(end += name.size());
        fill(memory->text.data() + begin, end - begin, name);
    }
    memory->buffers = {nullptr, memory->offsets.data(), memory->text.data()};
    finish(std::move(memory), market.size(), 0, out);
}

void export_list(const RowsRef& rows, const std::vector<std::int32_t>& ends,
                 const std::vector<std::int64_t>& items, ArrowArray* out) {
    auto memory = memory_of(rows, 1);
    export_numbers(rows, items.data(), items.size(), memory->items[0]);
    memory->buffers = {nullptr, ends.data()};
    finish(std::move(memory), rows->size(), 0, out);
}

}  // namespace

void FeatureRows::grow() {
    const std::size_t capacity = capacity_ == 0 ? 256 : capacity_ * 4;
    FeatureRows grown(features_);
    grown.time_ns_ = std::make_unique_for_overwrite<std::int64_t[]>(capacity);
    grown.market_ = std::make_unique_for_overwrite<std::uint32_t[]>(capacity);
    grown.values_ = std::make_unique_for_overwrite<double[]>(capacity * features_);
    grown.valid_ = std::make_unique_for_overwrite<std::uint8_t[]>(capacity * features_);
    std::copy_n(time_ns_.get(), size_, grown.time_ns_.get());
    std::copy_n(market_.get(), size_, grown.market_.get());
    for (std::size_t i = 0; i < features_; ++i) {
        std::copy_n(values_.get() + i * capacity_, size_, grown.values_.get() + i * capacity);
        std::copy_n(valid_.get() + i * capacity_, size_, grown.valid_.get() + i * capacity);
    }
    grown.size_ = size_;
    grown.capacity_ = capacity;
    grown.levels = std::move(levels);
    *this = std::move(grown);
}

void export_rows_schema(const std::vector<std::string>& features, const LevelsWanted& wanted,
                        bool with_venues, ArrowSchema* out) {
    const std::vector<Field> fields = fields_of(features, wanted, with_venues);
    ArrowChildren<ArrowSchema> made(fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i) export_field(fields[i], made[i]);
    export_struct_schema(std::move(made), out);
}

void export_rows(RowsRef rows, const MarketNames& names, ArrowArray* out) {
    const LevelsWanted wanted = rows->levels ? rows->levels->wanted() : LevelsWanted{};
    // The columns in the order of fields_of(), which gives their count.
    const std::vector<std::string> unnamed(rows->features());
    ArrowChildren<ArrowArray> made(fields_of(unnamed, wanted, names.with_venues).size());
    std::size_t at = 0;
    export_numbers(rows, rows->time_ns().data(), rows->size(), made[at++]);
    if (names.with_venues) export_texts(rows, names.venues, made[at++]);
    export_texts(rows, names.symbols, made[at++]);
    for (std::size_t i = 0; i < rows->features(); ++i)
        export_nullable(rows, rows->values(i).data(), rows->valid(i), made[at++]);
    if (rows->levels) {
        const LevelRows& levels = *rows->levels;
        export_nullable(rows, levels.seq.data(), levels.has_seq, made[at++]);
        export_flags(rows, levels.trusted, made[at++]);
        export_numbers(rows, levels.price_scale.data(), rows->size(), made[at++]);
        export_numbers(rows, levels.size_scale.data(), rows->size(), made[at++]);
        for (const LevelRows::Side* side : {&levels.bids, &levels.asks}) {
            export_list(rows, side->ends, side->price, made[at++]);
            export_list(rows, side->ends, side->size, made[at++]);
            if (wanted.orders) export_list(rows, side->ends, side->orders, made[at++]);
        }
    }
    export_struct(std::move(made), rows->size(), out);
}

}  // namespace tapewire::replay
