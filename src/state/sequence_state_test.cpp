#include "state/sequence_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/owned_context.h"

namespace motley {
namespace {

StateLayout small_layout() {
  StateLayout layout;
  layout.entries = {
      {.layer = 0, .kind = StateKind::kRecurrentMatrix, .fixed_bytes = 100},
      {.layer = 0, .kind = StateKind::kConvolutionWindow, .fixed_bytes = 24},
      {.layer = 1, .kind = StateKind::kPagedKv, .bytes_per_token = 2 * 1 * 4 * 4},
      {.layer = 2, .kind = StateKind::kPagedKv, .bytes_per_token = 2 * 1 * 4 * 4},
  };
  return layout;
}

constexpr PageLayout kHeads{.tokens_per_page = 64, .kv_heads = 1, .head_dim = 4};

TEST(SequenceState, PagesAreDistinctAndReturned) {
  OwnedContext context;
  PagePool pool(context.get(), 1 << 20);
  const StateLayout layout = small_layout();
  {
    SequenceState first = SequenceState::create(layout, pool).value();
    SequenceState second = SequenceState::create(layout, pool).value();
    ASSERT_TRUE(first.reserve(130).is_ok());
    ASSERT_TRUE(second.reserve(1).is_ok());
    std::set<std::byte*> pages;
    for (SequenceState* state : {&first, &second}) {
      for (const int layer : {1, 2}) {
        const CacheView view = state->cache(layer, StateKind::kPagedKv, kHeads, 1);
        pages.insert(view.pages.begin(), view.pages.end());
      }
    }
    EXPECT_EQ(pages.size(), 2u * 3 + 2u * 1);
    EXPECT_EQ(pool.used_bytes(), first.bytes() + second.bytes());
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(SequenceState, BudgetIsKeptAndNothingIsLost) {
  OwnedContext context;
  const StateLayout layout = small_layout();
  const int64_t page = 32 * 64;
  PagePool pool(context.get(), 192 + 3 * page);
  SequenceState state = SequenceState::create(layout, pool).value();
  ASSERT_TRUE(state.reserve(64).is_ok());
  const Status status = state.reserve(128);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("budget"), std::string::npos);
  EXPECT_EQ(state.cache(1, StateKind::kPagedKv, kHeads, 64).length, 64);
}

TEST(SequenceState, ClearZeroesFixedPieces) {
  OwnedContext context;
  PagePool pool(context.get(), 1 << 20);
  const StateLayout layout = small_layout();
  SequenceState state = SequenceState::create(layout, pool).value();
  std::memset(state.fixed(0, StateKind::kRecurrentMatrix), 7, 100);
  const std::vector<std::byte> saved = state.save_fixed();
  state.set_length(5);
  state.clear();
  EXPECT_EQ(std::to_integer<int>(state.fixed(0, StateKind::kRecurrentMatrix)[99]), 0);
  EXPECT_EQ(state.length(), 0);
  state.restore_fixed(saved);
  EXPECT_EQ(std::to_integer<int>(state.fixed(0, StateKind::kRecurrentMatrix)[99]), 7);
}

TEST(SequenceState, AllocationFailureIsAnError) {
  OwnedContext context;
  PagePool pool(context.get(), 1 << 20);
  const StateLayout layout = small_layout();
  SequenceState state = SequenceState::create(layout, pool).value();
  context.faults().arm("state.page", 2, resource_exhausted("injected"));
  EXPECT_EQ(state.reserve(64).message(), "injected");
  EXPECT_TRUE(state.reserve(64).is_ok());
}

TEST(SequenceStateDeathTest, LayoutAndBlockMustAgree) {
  OwnedContext context;
  PagePool pool(context.get(), 1 << 20);
  const StateLayout layout = small_layout();
  SequenceState state = SequenceState::create(layout, pool).value();
  ASSERT_TRUE(state.reserve(1).is_ok());
  const PageLayout other{.tokens_per_page = 64, .kv_heads = 2, .head_dim = 4};
  EXPECT_DEATH((void)state.cache(1, StateKind::kPagedKv, other, 1), "disagree about a page");
  EXPECT_DEATH((void)state.fixed(1, StateKind::kRecurrentMatrix), "no such piece");
}

}  // namespace
}  // namespace motley
