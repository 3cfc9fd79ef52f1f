#include "model/op_needs.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(OpNeeds, AreThoseOfLayersAndDrafts) {
  ModelSpec spec;
  LayerSpec plain;
  plain.mixer = GatedAttentionSpec{};
  plain.feed_forward = DenseMlpSpec{};
  spec.layers = {plain};
  EXPECT_FALSE(op_needs(spec).channel_delta);
  EXPECT_FALSE(op_needs(spec).hyper);
  EXPECT_FALSE(op_needs(spec).swiglu_limit);

  LayerSpec streams = plain;
  streams.residual = ResidualKind::kStreams;
  streams.mixer = ChannelDeltaSpec{};
  spec.layers.push_back(streams);
  EXPECT_TRUE(op_needs(spec).channel_delta);
  EXPECT_TRUE(op_needs(spec).hyper);
  EXPECT_FALSE(op_needs(spec).swiglu_limit);

  DraftSpec draft;
  draft.layer = plain;
  draft.layer.feed_forward = MoeSpec{.swiglu_limit = 10.0f};
  spec.drafts = {draft};
  EXPECT_TRUE(op_needs(spec).swiglu_limit);
  EXPECT_FALSE(op_needs(spec).index_pool);

  LatentAttentionSpec latent{.keys = KeySource::kOwn};
  latent.indexer.pool = 4;
  spec.drafts[0].layer.mixer = latent;
  EXPECT_TRUE(op_needs(spec).index_pool);
  EXPECT_TRUE(op_needs(spec).index);
}

}  // namespace
}  // namespace motley
