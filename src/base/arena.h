// Scratch memory of a step: bump allocation with scoped release.
//
// Grows only while the high-water mark does, so a steady step loop allocates nothing. Memory is
// uninitialised. Thread rule: one thread allocates; the memory itself may be shared with workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"

namespace motley {

// Where an arena's blocks come from when not from host memory (a device, say).
class ArenaBlockSource {
 public:
  virtual ~ArenaBlockSource() = default;
  // nullptr when there is no memory. Blocks are aligned to Arena::kAlignment or more.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release(std::byte* data, size_t bytes) = 0;
};

class Arena {
 public:
  static constexpr size_t kAlignment = 64;

  // Without a source blocks are host memory; with one, `source` outlives the arena.
  explicit Arena(ArenaBlockSource* source = nullptr) : source_(source) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `count` elements of T, 64-byte aligned, valid until the enclosing Scope ends.
  template <typename T>
  T* allocate(int64_t count) {
    return static_cast<T*>(allocate_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* allocate_bytes(size_t bytes);

  size_t capacity_bytes() const;
  size_t peak_bytes() const { return peak_; }

  // Everything allocated after construction is released at destruction.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), block_(arena.block_), used_(arena.used_) {}
    ~Scope() { arena_.release(block_, used_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t block_;
    size_t used_;
  };

 private:
  struct Block {
    AlignedBuffer host;  // empty when the block came from source_
    std::byte* data = nullptr;
    size_t size = 0;
  };

  Block allocate_block(size_t bytes);
  void free_blocks();
  void release(size_t block, size_t used);
  size_t in_use() const;

  ArenaBlockSource* source_;
  std::vector<Block> blocks_;
  size_t block_ = 0;  // index of the block being filled
  size_t used_ = 0;   // bytes used in it
  size_t peak_ = 0;
};

}  // namespace motley
