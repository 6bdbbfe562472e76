// Ownership of the memory of an exported Arrow array or schema, by the rules of the C data
// interface: a consumer may move a child out of its parent and keep it longer, so every child owns
// what it uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tapewire/arrow.hpp"

namespace tapewire {

// `memory` lives until the consumer releases `out`, an ArrowArray or an ArrowSchema.
template <class Memory, class Arrow>
void own(Arrow* out, std::unique_ptr<Memory> memory) noexcept {
    out->private_data = memory.release();
    out->release = [](Arrow* released) {
        delete static_cast<Memory*>(released->private_data);
        released->release = nullptr;
    };
}

// The children or the dictionary of an array or schema.
template <class Arrow>
class ArrowChildren {
  public:
    explicit ArrowChildren(std::size_t count) : each_(count), pointers_(count) {
        for (std::size_t i = 0; i < count; ++i) pointers_[i] = &each_[i];
    }
    ArrowChildren(ArrowChildren&&) noexcept = default;
    ArrowChildren(const ArrowChildren&) = delete;
    ArrowChildren& operator=(const ArrowChildren&) = delete;
    ~ArrowChildren() {  // children that a consumer moved out have a null release
        for (Arrow& child : each_) {
            if (child.release != nullptr) child.release(&child);
        }
    }

    std::size_t size() const noexcept { return each_.size(); }
    Arrow* operator[](std::size_t i) noexcept { return &each_[i]; }
    Arrow** pointers() noexcept { return pointers_.data(); }

  private:
    std::vector<Arrow> each_;
    std::vector<Arrow*> pointers_;
};

// A struct of these columns, without null rows.
inline void export_struct(ArrowChildren<ArrowArray> columns, std::size_t length, ArrowArray* out) {
    struct Memory {
        ArrowChildren<ArrowArray> columns;
        const void* buffers[1];
    };
    std::unique_ptr<Memory> memory(new Memory{std::move(columns), {nullptr}});
    *out = {};
    out->length = static_cast<std::int64_t>(length);
    out->n_buffers = 1;
    out->buffers = memory->buffers;
    out->n_children = static_cast<std::int64_t>(memory->columns.size());
    out->children = memory->columns.pointers();
    own(out, std::move(memory));
}

inline void export_struct_schema(ArrowChildren<ArrowSchema> fields, ArrowSchema* out) {
    auto memory = std::make_unique<ArrowChildren<ArrowSchema>>(std::move(fields));
    *out = {};
    out->format = "+s";
    out->name = "";
    out->n_children = static_cast<std::int64_t>(memory->size());
    out->children = memory->pointers();
    own(out, std::move(memory));
}

}  // namespace tapewire
