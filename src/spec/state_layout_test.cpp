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

TEST(StateLayout, FindsByLayerAndKind) {
  const StateLayout layout = make_state_layout(shape_35b(), {.chunked_delta = true});
  EXPECT_NE(layout.find(3, StateKind::kPagedKv), nullptr);
  EXPECT_EQ(layout.find(3, StateKind::kRecurrentMatrix), nullptr);
  EXPECT_NE(layout.find(0, StateKind::kDeltaCarry), nullptr);
  EXPECT_EQ(layout.find(40, StateKind::kDraftKv)->shard_rule, ShardRule::kByToken);
  EXPECT_EQ(layout.find(0, StateKind::kConvolutionWindow)->shard_rule, ShardRule::kByChannelBlocks);
}

}  // namespace
}  // namespace motley
