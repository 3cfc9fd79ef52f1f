#include "state/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

#include "base/owned_context.h"

namespace motley {
namespace {

class PagePoolTest : public ::testing::Test {
 protected:
  OwnedContext context_;
};

TEST_F(PagePoolTest, PagesAreAlignedAndDoNotOverlap) {
  PagePool pool(context_.get(), 1 << 20);
  constexpr int64_t kBytes = 100;  // no multiple of the alignment
  std::vector<std::byte*> pages;
  for (int i = 0; i < 50; ++i) {
    std::byte* page = pool.take(kBytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % 64, 0u);
    std::memset(page, i, kBytes);
    pages.push_back(page);
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(std::to_integer<int>(pages[static_cast<size_t>(i)][0]), i);
    EXPECT_EQ(std::to_integer<int>(pages[static_cast<size_t>(i)][kBytes - 1]), i);
  }
  EXPECT_EQ(pool.used_bytes(), 50 * kBytes);
}

TEST_F(PagePoolTest, RecyclesPagesOfTheSameSizeOnly) {
  PagePool pool(context_.get(), 1 << 20);
  std::byte* small = pool.take(64).value();
  pool.give_back(small, 64);
  std::byte* large = pool.take(4096).value();
  EXPECT_NE(large, small);
  EXPECT_EQ(pool.take(64).value(), small);
  EXPECT_EQ(pool.used_bytes(), 64 + 4096);
}

// A page larger than a slab has a slab of its own.
TEST_F(PagePoolTest, LargePages) {
  PagePool pool(context_.get(), int64_t{8} << 20);
  constexpr int64_t kBytes = (int64_t{1} << 20) + 1;
  std::byte* first = pool.take(kBytes).value();
  std::byte* second = pool.take(kBytes).value();
  std::memset(first, 1, kBytes);
  std::memset(second, 2, kBytes);
  EXPECT_EQ(std::to_integer<int>(first[kBytes - 1]), 1);
  EXPECT_EQ(pool.used_bytes(), 2 * kBytes);
}

TEST_F(PagePoolTest, TheMessageHoldsTheArithmetic) {
  PagePool pool(context_.get(), 1000);
  ASSERT_TRUE(pool.take(600).is_ok());
  const Status refused = pool.take(401).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "sequence state needs 401 bytes more; 600 of the 1000 byte budget are in use");
  EXPECT_EQ(pool.used_bytes(), 600) << "a refusal takes nothing";
  EXPECT_TRUE(pool.take(400).is_ok()) << "the budget may be used to the last byte";
  EXPECT_EQ(pool.budget_bytes(), 1000);
}

// The budget counts what is in use, not what was allocated once.
TEST_F(PagePoolTest, GivenBackPagesMakeRoomForAnotherSize) {
  PagePool pool(context_.get(), 1024);
  std::vector<std::byte*> small;
  for (int i = 0; i < 16; ++i) small.push_back(pool.take(64).value());
  EXPECT_FALSE(pool.take(1024).is_ok());
  for (std::byte* page : small) pool.give_back(page, 64);
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_TRUE(pool.take(1024).is_ok());
}

TEST_F(PagePoolTest, ChargedBlocksCountToo) {
  PagePool pool(context_.get(), 1000);
  ASSERT_TRUE(pool.charge(900).is_ok());
  EXPECT_FALSE(pool.take(101).is_ok());
  EXPECT_EQ(pool.charge(200).code(), StatusCode::kResourceExhausted);
  pool.discharge(900);
  EXPECT_TRUE(pool.take(1000).is_ok());
}

TEST_F(PagePoolTest, AFaultTakesNothing) {
  PagePool pool(context_.get(), 1000);
  context_.faults().arm("state.page", 1, resource_exhausted("injected"));
  EXPECT_EQ(pool.take(100).status().message(), "injected");
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST_F(PagePoolTest, ThreadsShareIt) {
  PagePool pool(context_.get(), 1 << 20);
  constexpr int kThreads = 4;
  constexpr int kPages = 200;
  std::vector<std::vector<std::byte*>> taken(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&pool, &pages = taken[static_cast<size_t>(t)]] {
      for (int i = 0; i < kPages; ++i) {
        pages.push_back(pool.take(128).value());
        if (i % 3 != 0) continue;
        pool.give_back(pages.back(), 128);
        pages.pop_back();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::byte*> distinct;
  size_t count = 0;
  for (const auto& pages : taken) {
    distinct.insert(pages.begin(), pages.end());
    count += pages.size();
  }
  EXPECT_EQ(distinct.size(), count) << "no page has two owners";
  EXPECT_EQ(pool.used_bytes(), static_cast<int64_t>(count) * 128);
}

}  // namespace
}  // namespace motley
