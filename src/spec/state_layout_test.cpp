#include "spec/state_layout.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

// The dimensions of the 35B-A3B shape: 30 delta layers, 10 attention layers, one draft.
ModelSpec shape_35b() {
  ModelSpec spec;
  spec.hidden_size = 2048;
  LayerSpec delta;
  delta.mixer = GatedDeltaSpec{.key_heads = 16,
                               .value_heads = 32,
                               .key_head_dim = 128,
                               .value_head_dim = 128,
                               .conv_kernel = 4};
  LayerSpec attention;
  attention.mixer =
      GatedAttentionSpec{.heads = 16, .kv_heads = 2, .head_dim = 256, .rotary_dim = 64};
  for (int i = 0; i < 40; ++i) spec.layers.push_back((i + 1) % 4 == 0 ? attention : delta);
  DraftSpec draft;
  draft.layer = attention;
  spec.drafts.push_back(draft);
  return spec;
}

TEST(StateLayout, SizesOfTheRealShape) {
  const StateLayout layout = make_state_layout(shape_35b(), {.kv = DType::kBf16});
  EXPECT_EQ(layout.bytes_per_token(), 20480 + 2048);
  // 30 x 2 MiB of matrices, 30 x 3 x 8192 floats of window, one hidden row.
  EXPECT_EQ(layout.fixed_bytes(), 62914560 + 2949120 + 2048 * 4);
  EXPECT_EQ(layout.bytes_for(65), layout.fixed_bytes() + 128 * layout.bytes_per_token());
}

// 34 Kimi delta layers of 64 heads of 128: 4 MiB of matrix and 3 x 3 x 8192 floats of window each.
TEST(StateLayout, SizesOfKimiDeltaLayers) {
  ModelSpec spec;
  LayerSpec layer;
  layer.mixer =
      ChannelDeltaSpec{.heads = 64, .key_head_dim = 128, .value_head_dim = 128, .conv_kernel = 4};
  spec.layers.assign(34, layer);
  StateFormat format;
  EXPECT_EQ(make_state_layout(spec, format).fixed_bytes(), 34 * (4194304 + 3 * 24576 * 4));
  EXPECT_EQ(make_state_layout(spec, format).bytes_per_token(), 0);
  format.chunked_delta = true;
  const StateLayout chunked = make_state_layout(spec, format);
  // 64 tokens of faded keys and updates, and one factor per key channel.
  EXPECT_EQ(chunked.find(33, StateKind::kDeltaCarry)->fixed_bytes, (64 * 16384 + 8192) * 4);
  EXPECT_EQ(chunked.find(0, StateKind::kRecurrentMatrix)->shard_rule, ShardRule::kByValueHead);
}

// 11 latent layers whose indexers keep one key for four tokens: 64 bytes a token each.
TEST(StateLayout, SizesOfPooledIndexKeys) {
  ModelSpec spec;
  LayerSpec layer;
  LatentAttentionSpec latent{.kv_rank = 512, .keys = KeySource::kOwn};
  latent.indexer = {.head_dim = 128, .top_k = 2048, .pool = 4};
  layer.mixer = latent;
  spec.layers.assign(11, layer);
  const StateLayout layout = make_state_layout(spec, {.kv = DType::kBf16});
  EXPECT_EQ(layout.bytes_per_token(), 11 * (1024 + 64));
  EXPECT_EQ(layout.find(10, StateKind::kIndexRing)->fixed_bytes, (4 + 8) * 256 * 4);
  EXPECT_EQ(layout.fixed_bytes(), 11 * 12 * 256 * 4);

  // Pools that no page holds a whole number of: every 64 tokens have room for the keys of 66.
  latent.indexer = {.head_dim = 5, .top_k = 30, .pool = 3};
  spec.layers.front().mixer = latent;
  const StateLayout odd = make_state_layout(spec, {.kv = DType::kBf16});
  const StateEntry* keys = odd.find(0, StateKind::kIndexKeys);
  EXPECT_EQ(StateLayout::rows_per_page(3), 22);
  EXPECT_GE(keys->bytes_per_token * 64, 22 * 5 * 2);
  EXPECT_LT(keys->bytes_per_token * 64, 22 * 5 * 2 + 64);
}

TEST(StateLayout, FindsByLayerAndKind) {
  const StateLayout layout = make_state_layout(shape_35b(), {.chunked_delta = true});
  EXPECT_NE(layout.find(3, StateKind::kPagedKv), nullptr);
  EXPECT_EQ(layout.find(3, StateKind::kRecurrentMatrix), nullptr);
  EXPECT_NE(layout.find(0, StateKind::kDeltaCarry), nullptr);
  EXPECT_EQ(layout.find(40, StateKind::kDraftKv)->shard_rule, ShardRule::kByToken);
  EXPECT_EQ(layout.find(0, StateKind::kConvolutionWindow)->shard_rule, ShardRule::kByChannelBlocks);
}

// Every piece of one layer of each kind, by hand.
TEST(StateLayout, BytesOfEveryPiece) {
  const StateLayout layout = make_state_layout(
      shape_35b(), {.kv = DType::kF32, .recurrent = DType::kF64, .chunked_delta = true});
  EXPECT_EQ(layout.find(0, StateKind::kConvolutionWindow)->fixed_bytes, 3 * 8192 * 8);
  EXPECT_EQ(layout.find(0, StateKind::kRecurrentMatrix)->fixed_bytes, 32 * 128 * 128 * 8);
  // 64 tokens of normalised keys, updates and decays.
  EXPECT_EQ(layout.find(0, StateKind::kDeltaCarry)->fixed_bytes, 64 * (2048 + 4096 + 32) * 8);
  EXPECT_EQ(layout.find(3, StateKind::kPagedKv)->bytes_per_token, 2 * 2 * 256 * 4);
  EXPECT_EQ(layout.find(40, StateKind::kLastHidden)->fixed_bytes, 2048 * 8);
  for (const StateEntry& entry : layout.entries) {
    const bool is_kv = entry.kind == StateKind::kPagedKv || entry.kind == StateKind::kDraftKv;
    EXPECT_EQ(entry.dtype, is_kv ? DType::kF32 : DType::kF64);
    EXPECT_NE(entry.bytes_per_token > 0, entry.fixed_bytes > 0) << "paged or fixed, never both";
  }
}

TEST(StateLayout, WithoutDraftsTheTrunkAloneIsHeld) {
  const StateLayout with = make_state_layout(shape_35b(), {});
  const StateLayout without = make_state_layout(shape_35b(), {.drafts = false});
  EXPECT_EQ(with.entries.size(), without.entries.size() + 2);
  EXPECT_EQ(without.find(40, StateKind::kDraftKv), nullptr);
  EXPECT_EQ(without.find(40, StateKind::kLastHidden), nullptr);
  EXPECT_EQ(without.bytes_per_token(), 10 * 2 * 2 * 256 * 4);
}

// Rings for 6 tentative rows: what they do to the matrix (keys, updates, factors) and the window.
TEST(StateLayout, RingsOfTentativeRows) {
  ModelSpec spec = shape_35b();
  spec.layers[1].mixer =
      ChannelDeltaSpec{.heads = 64, .key_head_dim = 128, .value_head_dim = 128, .conv_kernel = 4};
  const StateLayout layout = make_state_layout(spec, {.tentative_rows = 6});
  EXPECT_EQ(layout.find(0, StateKind::kReplayRing)->fixed_bytes, 6 * (2048 + 4096 + 32) * 4);
  EXPECT_EQ(layout.find(0, StateKind::kWindowRing)->fixed_bytes, 6 * 8192 * 4);
  EXPECT_EQ(layout.find(1, StateKind::kReplayRing)->fixed_bytes, 6 * 3 * 8192 * 4);
  EXPECT_EQ(layout.find(1, StateKind::kWindowRing)->shard_rule, ShardRule::kByChannelBlocks);
  EXPECT_EQ(layout.find(3, StateKind::kReplayRing), nullptr) << "paged state goes by its length";
  EXPECT_EQ(make_state_layout(spec, {}).find(0, StateKind::kReplayRing), nullptr);
}

TEST(StateLayout, TokensAreRoundedUpToPages) {
  const StateLayout layout = make_state_layout(shape_35b(), {});
  EXPECT_EQ(layout.bytes_for(0), layout.fixed_bytes());
  EXPECT_EQ(layout.bytes_for(1), layout.bytes_for(64));
  EXPECT_EQ(layout.bytes_for(65) - layout.bytes_for(64), 64 * layout.bytes_per_token());
  // A context of a million tokens does not overflow.
  EXPECT_EQ(layout.bytes_for(1 << 20),
            layout.fixed_bytes() + (int64_t{1} << 20) * layout.bytes_per_token());
}

TEST(StateLayout, EachPieceIsListedOnce) {
  const StateLayout layout = make_state_layout(shape_35b(), {.chunked_delta = true});
  for (const StateEntry& entry : layout.entries) {
    EXPECT_EQ(layout.find(entry.layer, entry.kind), &entry)
        << "layer " << entry.layer << " " << state_kind_name(entry.kind);
  }
}

}  // namespace
}  // namespace motley
