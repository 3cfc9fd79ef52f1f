// How the state of a sequence grows, moves and ends, and that it is what the layout says.
#include <gtest/gtest.h>

#include <cstring>

#include "base/owned_context.h"
#include "spec/model_spec.h"
#include "state/sequence_state.h"

namespace motley {
namespace {

constexpr int kPage = StateLayout::kTokensPerPage;

// Three delta layers, one of attention, one draft, as the engine makes it.
StateLayout made_layout(const StateFormat& format) {
  ModelSpec spec;
  spec.hidden_size = 24;
  LayerSpec delta;
  delta.mixer = GatedDeltaSpec{
      .key_heads = 1, .value_heads = 3, .key_head_dim = 4, .value_head_dim = 6, .conv_kernel = 4};
  LayerSpec attention;
  attention.mixer = GatedAttentionSpec{.heads = 4, .kv_heads = 2, .head_dim = 8, .rotary_dim = 4};
  spec.layers = {delta, delta, delta, attention};
  spec.drafts.push_back({.layer = attention});
  return make_state_layout(spec, format);
}

PageLayout heads(DType dtype) {
  return {.tokens_per_page = kPage, .kv_heads = 2, .head_dim = 8, .dtype = dtype};
}

class Growth : public ::testing::Test {
 protected:
  SequenceState new_state() { return SequenceState::create(layout_, pool_).value(); }
  size_t pages(SequenceState& state, int layer = 3, StateKind kind = StateKind::kPagedKv) {
    return state.cache(layer, kind, heads(DType::kBf16), 0).pages.size();
  }

  OwnedContext context_;
  StateLayout layout_ = made_layout({.kv = DType::kBf16, .chunked_delta = true});
  PagePool pool_{context_.get(), 1 << 20};
};

TEST_F(Growth, PagesComeOneByOneAtTheirEdges) {
  SequenceState state = new_state();
  EXPECT_EQ(pages(state), 0u);
  for (const auto& [tokens, want] : std::vector<std::pair<int64_t, size_t>>{
           {0, 0}, {1, 1}, {kPage, 1}, {kPage + 1, 2}, {2 * kPage, 2}, {5 * kPage, 5}}) {
    ASSERT_TRUE(state.reserve(tokens).is_ok());
    EXPECT_EQ(pages(state), want) << tokens;
    EXPECT_EQ(pages(state, 4, StateKind::kDraftKv), want) << tokens;
  }
}

TEST_F(Growth, ReservingLessKeepsThePages) {
  SequenceState state = new_state();
  ASSERT_TRUE(state.reserve(3 * kPage).is_ok());
  const CacheView before = state.cache(3, StateKind::kPagedKv, heads(DType::kBf16), 3 * kPage);
  const std::vector<std::byte*> addresses(before.pages.begin(), before.pages.end());
  ASSERT_TRUE(state.reserve(1).is_ok());
  ASSERT_TRUE(state.reserve(4 * kPage).is_ok());
  const CacheView after = state.cache(3, StateKind::kPagedKv, heads(DType::kBf16), 1);
  ASSERT_EQ(after.pages.size(), 4u);
  for (size_t i = 0; i < addresses.size(); ++i) EXPECT_EQ(after.pages[i], addresses[i]);
}

TEST_F(Growth, BytesAreThoseOfTheLayout) {
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{kPage}, int64_t{3 * kPage + 7}}) {
    SequenceState state = new_state();
    ASSERT_TRUE(state.reserve(tokens).is_ok());
    // Fixed pieces are rounded up to the alignment of each; pages are exact.
    const int64_t fixed = state.bytes() - (layout_.bytes_for(tokens) - layout_.fixed_bytes());
    EXPECT_GE(fixed, layout_.fixed_bytes());
    EXPECT_LT(fixed, layout_.fixed_bytes() + 64 * std::ssize(layout_.entries));
    EXPECT_EQ(pool_.used_bytes(), state.bytes());
  }
}

// Every fixed piece may be written to its end without touching another.
TEST_F(Growth, FixedPiecesDoNotOverlap) {
  SequenceState state = new_state();
  int mark = 0;
  for (const StateEntry& entry : layout_.entries) {
    if (entry.fixed_bytes == 0) continue;
    std::byte* piece = state.fixed(entry.layer, entry.kind);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
    std::memset(piece, ++mark, static_cast<size_t>(entry.fixed_bytes));
  }
  EXPECT_EQ(mark, 3 * 3 + 1);  // window, matrix and carry of three layers, one hidden row
  mark = 0;
  for (const StateEntry& entry : layout_.entries) {
    if (entry.fixed_bytes == 0) continue;
    const std::byte* piece = state.fixed(entry.layer, entry.kind);
    ++mark;
    for (int64_t i = 0; i < entry.fixed_bytes; ++i) {
      ASSERT_EQ(std::to_integer<int>(piece[i]), mark) << state_kind_name(entry.kind) << " " << i;
    }
  }
}

TEST_F(Growth, ANewSequenceIsZero) {
  {
    SequenceState used = new_state();
    std::memset(used.fixed(0, StateKind::kRecurrentMatrix), 9, 64);
  }
  SequenceState state = new_state();
  for (const std::byte byte : state.save_fixed()) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(Growth, AMovedStateOwnsEverythingOnce) {
  SequenceState first = new_state();
  ASSERT_TRUE(first.reserve(2 * kPage).is_ok());
  first.set_length(70);
  *first.carry_rows(1) = 6;
  const int64_t bytes = pool_.used_bytes();
  const std::byte* window = first.fixed(0, StateKind::kConvolutionWindow);
  {
    SequenceState second = std::move(first);
    EXPECT_EQ(second.length(), 70);
    EXPECT_EQ(*second.carry_rows(1), 6);
    EXPECT_EQ(second.fixed(0, StateKind::kConvolutionWindow), window);
    EXPECT_EQ(pages(second), 2u);
    EXPECT_EQ(pool_.used_bytes(), bytes);
  }
  EXPECT_EQ(pool_.used_bytes(), 0) << "the moved-from state gives nothing back a second time";
}

TEST_F(Growth, CarriesAreCountedPerLayer) {
  SequenceState state = new_state();
  EXPECT_FALSE(state.has_carry());
  *state.carry_rows(2) = 1;
  EXPECT_TRUE(state.has_carry());
  EXPECT_EQ(*state.carry_rows(0), 0);
  state.clear();
  EXPECT_FALSE(state.has_carry());
}

TEST_F(Growth, ClearGivesPagesBackAndTheSequenceCanGrowAgain) {
  SequenceState state = new_state();
  const int64_t empty = pool_.used_bytes();
  ASSERT_TRUE(state.reserve(4 * kPage).is_ok());
  EXPECT_GT(pool_.used_bytes(), empty);
  state.clear();
  EXPECT_EQ(pool_.used_bytes(), empty);
  ASSERT_TRUE(state.reserve(kPage).is_ok());
  EXPECT_EQ(pages(state), 1u);
}

TEST_F(Growth, TheFixedPartMustFit) {
  PagePool small(context_.get(), 100);
  const Status status = SequenceState::create(layout_, small).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("0 of the 100 byte budget are in use"), std::string::npos)
      << status.message();
  EXPECT_EQ(small.used_bytes(), 0);
}

// The second of two caches fails: the first keeps its spare page and the next try takes only what
// is still missing.
TEST_F(Growth, AHalfDoneReserveIsContinued) {
  SequenceState state = new_state();
  const int64_t empty = pool_.used_bytes();
  context_.faults().arm("state.page", 2, resource_exhausted("injected"));
  EXPECT_FALSE(state.reserve(1).is_ok());
  EXPECT_EQ(pages(state), 1u);
  EXPECT_EQ(pages(state, 4, StateKind::kDraftKv), 0u);
  ASSERT_TRUE(state.reserve(1).is_ok());
  EXPECT_EQ(pages(state), 1u);
  EXPECT_EQ(pool_.used_bytes() - empty, kPage * layout_.bytes_per_token());
}

TEST_F(Growth, CacheViewsAreOverReservedTokensOnly) {
  SequenceState state = new_state();
  ASSERT_TRUE(state.reserve(kPage + 1).is_ok());
  const CacheView view = state.cache(3, StateKind::kPagedKv, heads(DType::kBf16), 2 * kPage);
  EXPECT_EQ(view.length, 2 * kPage);
  EXPECT_TRUE(view.shard.is_whole());
  EXPECT_DEATH((void)state.cache(3, StateKind::kPagedKv, heads(DType::kBf16), 2 * kPage + 1),
               "pages that were not reserved");
  EXPECT_DEATH((void)state.cache(3, StateKind::kPagedKv, heads(DType::kF32), 1),
               "disagree about a page");
  EXPECT_DEATH((void)state.cache(4, StateKind::kPagedKv, heads(DType::kBf16), 1), "no such piece");
}

TEST_F(Growth, ASnapshotOfAnotherLayoutIsABug) {
  SequenceState state = new_state();
  std::vector<std::byte> saved = state.save_fixed();
  saved.pop_back();
  EXPECT_DEATH(state.restore_fixed(saved), "snapshot of another layout");
}

TEST_F(Growth, ALayoutWithoutFixedPiecesWorks) {
  StateLayout paged;
  paged.entries = {{.layer = 0, .kind = StateKind::kPagedKv, .bytes_per_token = 8}};
  SequenceState state = SequenceState::create(paged, pool_).value();
  EXPECT_TRUE(state.save_fixed().empty());
  EXPECT_EQ(state.bytes(), 0);
  ASSERT_TRUE(state.reserve(1).is_ok());
  EXPECT_EQ(state.bytes(), 8 * kPage);
}

}  // namespace
}  // namespace motley
