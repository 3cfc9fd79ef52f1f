#include "model/op_needs.h"

namespace motley {
namespace {

void add_layer(const LayerSpec& layer, OpNeeds* needs) {
  needs->channel_delta |= std::holds_alternative<ChannelDeltaSpec>(layer.mixer);
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer)) {
    needs->latent = true;
    needs->index |= latent->keys == KeySource::kOwn;
    needs->index_pool |= latent->keys == KeySource::kOwn && latent->indexer.is_pooled();
  }
  needs->hyper |= layer.residual == ResidualKind::kStreams;
  const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
  const float limit =
      moe != nullptr ? moe->swiglu_limit : std::get<DenseMlpSpec>(layer.feed_forward).swiglu_limit;
  needs->sigmoid_routing |= moe != nullptr && moe->router_kind == RouterKind::kSigmoid;
  needs->swiglu_limit |= limit != kNoActivationLimit;
}

}  // namespace

OpNeeds op_needs(const ModelSpec& spec) {
  OpNeeds needs;
  for (const LayerSpec& layer : spec.layers) add_layer(layer, &needs);
  for (const DraftSpec& draft : spec.drafts) add_layer(draft.layer, &needs);
  return needs;
}

}  // namespace motley
