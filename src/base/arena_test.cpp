#include "base/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace motley {
namespace {

TEST(Arena, ScopesReleaseAndPiecesAreAligned) {
  Arena arena;
  float* first = nullptr;
  {
    Arena::Scope scope(arena);
    first = arena.allocate<float>(100);
    float* second = arena.allocate<float>(1);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % Arena::kAlignment, 0u);
    EXPECT_GE(second, first + 100);
  }
  Arena::Scope scope(arena);
  EXPECT_EQ(arena.allocate<float>(5), first);
}

TEST(Arena, SteadyLoopStopsGrowing) {
  Arena arena;
  size_t capacity = 0;
  for (int step = 0; step < 5; ++step) {
    Arena::Scope scope(arena);
    for (int i = 0; i < 20; ++i) {
      std::memset(arena.allocate<char>(300'000), i, 300'000);
    }
    if (step == 2) capacity = arena.capacity_bytes();
  }
  EXPECT_EQ(arena.capacity_bytes(), capacity);
  EXPECT_GE(arena.peak_bytes(), 6'000'000u);
}

// Counts what is held, as a device allocator would.
class CountingSource final : public ArenaBlockSource {
 public:
  std::byte* allocate(size_t bytes) override {
    held += bytes;
    return static_cast<std::byte*>(std::aligned_alloc(Arena::kAlignment, bytes));
  }
  void release(std::byte* data, size_t bytes) override {
    held -= bytes;
    std::free(data);
  }
  size_t held = 0;
};

TEST(Arena, BlocksOfASourceGoBackToIt) {
  CountingSource source;
  {
    Arena arena(&source);
    {
      Arena::Scope scope(arena);
      arena.allocate<char>(3 << 20);
      arena.allocate<char>(5 << 20);
      EXPECT_EQ(source.held, arena.capacity_bytes());
    }
    EXPECT_EQ(source.held, arena.capacity_bytes());  // merged into one block
    EXPECT_GE(source.held, size_t{8} << 20);
  }
  EXPECT_EQ(source.held, 0u);
}

TEST(AlignedBuffer, IsZeroedAndPageAligned) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    AlignedBuffer buffer = AlignedBuffer::allocate(bytes).value();
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
    EXPECT_EQ(std::to_integer<int>(buffer.bytes().back()), 0);
  }
}

TEST(AlignedBuffer, RefusesTheImpossible) {
  EXPECT_EQ(AlignedBuffer::allocate(SIZE_MAX - 5).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace motley
