// An owning block of raw memory, aligned for vector loads and O_DIRECT, optionally on huge pages.
// Contents start zeroed. Thread rule: one owner; the bytes may be read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace motley {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 4096;

  AlignedBuffer() = default;

  // kResourceExhausted when the kernel refuses. Blocks of 2 MiB and more ask for huge pages.
  static Result<AlignedBuffer> allocate(size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Unmap {
    Unmap() : mapped_bytes(0) {}
    explicit Unmap(size_t bytes) : mapped_bytes(bytes) {}
    size_t mapped_bytes;
    void operator()(std::byte* data) const;
  };

  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_ = 0;
};

}  // namespace motley
