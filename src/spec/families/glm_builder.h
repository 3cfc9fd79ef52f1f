// The tensors of GLM families with latent attention, by the names of released files.
// Source: transformers models/glm_moe_dsa; ml-explore/mlx-lm models/glm_moe_dsa.py.
#pragma once

#include <string>

#include "spec/families/glm_config.h"
#include "spec/families/tensor_list.h"
#include "spec/tensor_catalog.h"

namespace motley {

// A layer under construction: names in reports and in the file.
struct GlmPlace {
  std::string name;    // "layers.3."
  std::string module;  // "model.layers.3."
  bool is_draft = false;

  std::string part(std::string_view trunk_part) const {
    return std::string(is_draft ? "draft" : trunk_part);
  }
};

class GlmBuilder {
 public:
  // `prefix`: "model." or the like. latent_epsilon: of the norms of latents.
  GlmBuilder(const GlmConfig& config, const TensorCatalog& catalog, std::string prefix,
             float latent_epsilon, ModelSpec* spec)
      : config_(config),
        catalog_(catalog),
        prefix_(std::move(prefix)),
        latent_epsilon_(latent_epsilon),
        spec_(spec),
        list_(spec) {}

  const std::string& prefix() const { return prefix_; }
  TensorList& list() { return list_; }
  GlmPlace place(int layer) const;  // the layer after the last one is the draft's

  // Sizes, embedding, final norm and head; the layers are not of these.
  void add_ends();
  NormSpec norm(std::string name, std::string module, int64_t size, std::string part);
  // An error names a tensor of an indexer where the configuration wants none.
  Result<LatentAttentionSpec> latent_attention(const GlmPlace& place, KeySource keys);
  DenseMlpSpec dense_mlp(const GlmPlace& place, float swiglu_limit = kNoActivationLimit);
  MoeSpec moe(const GlmPlace& place, float swiglu_limit = kNoActivationLimit);
  // Both norms and the feed-forward of a layer; the mixer is the caller's.
  LayerSpec layer(const GlmPlace& place, MixerSpec mixer, bool dense,
                  float swiglu_limit = kNoActivationLimit);
  // The draft layer, when the configuration has one, over a mixer with an indexer of its own.
  Status add_draft(float swiglu_limit = kNoActivationLimit);

 private:
  bool has(const std::string& name) const { return catalog_.find(name) != nullptr; }
  IndexerSpec indexer(const GlmPlace& place);
  TensorHandle bias(const GlmPlace& place, std::string_view leaf, int64_t size);

  const GlmConfig& config_;
  const TensorCatalog& catalog_;
  const std::string prefix_;
  const float latent_epsilon_;
  ModelSpec* spec_;
  TensorList list_;
};

}  // namespace motley
