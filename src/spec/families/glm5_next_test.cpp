// glm5_next: configuration, names, and what is refused.
#include <gmock/gmock.h>

#include <set>

#include "spec/family_registry.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

// Knows names alone: the family decides by few of them, and the loader checks the rest.
class Names : public TensorCatalog {
 public:
  explicit Names(std::set<std::string, std::less<>> names) : names_(std::move(names)) {}
  const CatalogEntry* find(std::string_view name) const override {
    return names_.count(name) > 0 ? &entry_ : nullptr;
  }

 private:
  std::set<std::string, std::less<>> names_;
  CatalogEntry entry_;
};

Names nested_names() {
  return Names(
      {"model.language_model.embed_tokens.weight", "model.language_model.layers.4.eh_proj.weight"});
}

constexpr std::string_view kFields =
    R"("hidden_size":64,"vocab_size":32,"num_hidden_layers":4,"num_attention_heads":2,)"
    R"("q_lora_rank":32,"kv_lora_rank":16,"qk_nope_head_dim":8,"qk_rope_head_dim":0,)"
    R"("v_head_dim":8,"index_n_heads":2,"index_head_dim":16,"index_topk":8,"index_kpool":4,)"
    R"("linear_num_heads":3,"linear_head_dim":8,"linear_conv_kernel_dim":4,)"
    R"("n_routed_experts":4,"num_experts_per_tok":2,"n_shared_experts":1,)"
    R"("moe_intermediate_size":32,"intermediate_size":48,"first_k_dense_replace":1,)"
    R"("max_position_embeddings":128,"rms_norm_eps":1e-5,"hc_mult":3,"swiglu_limit":7.0,)"
    R"("hidden_act":"silu","eos_token_id":2,"num_nextn_predict_layers":1)";

std::string config_text(const std::string& extra = "") {
  return R"({"model_type":"glm5_next","text_config":{)" + std::string(kFields) + extra + "}}";
}

Result<ModelSpec> build(const std::string& text, const Names& names = nested_names()) {
  const auto config = ConfigJson::parse(text, "config.json");
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return build_model_spec(*config, names);
}

const TensorSpec& tensor_named(const ModelSpec& spec, std::string_view name) {
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.name == name) return tensor;
  }
  MOTLEY_CHECK(false, "no such tensor");
}

TEST(Glm5Next, LayersAreDeltasAndPooledIndexers) {
  const auto spec = build(config_text());
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  ASSERT_EQ(spec->layers.size(), 4u);
  EXPECT_EQ(spec->residual.streams, 3);
  EXPECT_EQ(spec->residual.post_scale, 2.0f);
  EXPECT_EQ(spec->residual.norm_epsilon, 1e-5f);
  const auto& delta = std::get<ChannelDeltaSpec>(spec->layers[2].mixer);
  EXPECT_TRUE(delta.bounded);
  EXPECT_EQ(delta.lower_bound, -5.0f);
  const auto& latent = std::get<LatentAttentionSpec>(spec->layers[3].mixer);
  EXPECT_EQ(latent.keys, KeySource::kOwn);
  EXPECT_EQ(latent.cache_width(), 16);
  EXPECT_EQ(latent.kv_a_norm.epsilon, 1e-5f) << "the epsilon of every other norm";
  EXPECT_TRUE(latent.indexer.is_pooled());
  EXPECT_EQ(latent.indexer.width(), 8 + 3);
  EXPECT_EQ(latent.indexer.rotary_dim, 0);
  for (const LayerSpec& layer : spec->layers) EXPECT_EQ(layer.residual, ResidualKind::kStreams);
  EXPECT_EQ(std::get<DenseMlpSpec>(spec->layers[0].feed_forward).swiglu_limit, 7.0f);
  EXPECT_EQ(std::get<MoeSpec>(spec->layers[1].feed_forward).router_kind, RouterKind::kSigmoid);
  ASSERT_EQ(spec->drafts.size(), 1u);
  EXPECT_EQ(spec->drafts[0].layer.residual, ResidualKind::kPlain);
  EXPECT_TRUE(spec->drafts[0].zero_first_embedding);
}

TEST(Glm5Next, NamesOfTensors) {
  const auto spec = build(config_text());
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  const auto piece = [&](std::string_view name) { return tensor_named(*spec, name).pieces[0]; };
  const std::string prefix = "model.language_model.layers.";
  EXPECT_EQ(piece("layers.3.indexer.pool_gate").module,
            prefix + "3.self_attn.indexer.index_kpool_compress_gate");
  EXPECT_TRUE(piece("layers.3.indexer.pool_gate").bare);
  EXPECT_EQ(tensor_named(*spec, "layers.3.indexer.pool_offset").shape, (Shape{4, 16}));
  EXPECT_EQ(tensor_named(*spec, "layers.3.indexer.pool_offset").role, TensorRole::kTable);
  EXPECT_EQ(piece("layers.1.hyper.ffn.fn").module, prefix + "1.hc_ffn_fn");
  EXPECT_EQ(tensor_named(*spec, "layers.1.hyper.ffn.fn").shape, (Shape{15, 192}));
  const TensorSpec& convolution = tensor_named(*spec, "layers.0.delta.convolution");
  EXPECT_EQ(convolution.shape, (Shape{72, 4}));
  EXPECT_EQ(convolution.pieces[1].module, prefix + "0.self_attn.k_conv1d");
  EXPECT_EQ(piece("drafts.0.projection").module, prefix + "4.eh_proj");
}

TEST(Glm5Next, FlatFilesOfTheTextAlone) {
  const Names names({"model.embed_tokens.weight", "model.layers.4.eh_proj.weight"});
  const auto spec = build(R"({"model_type":"glm5_next_text",)" + std::string(kFields) + "}", names);
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(tensor_named(*spec, "final_norm").pieces[0].module, "model.norm");
}

TEST(Glm5Next, TheDecayHasTwoSpellingsAndMayHaveNoBound) {
  const auto decay = [](const std::string& extra) {
    const auto spec = build(config_text(extra));
    EXPECT_TRUE(spec.is_ok()) << spec.status().message();
    return std::get<ChannelDeltaSpec>(spec->layers[0].mixer);
  };
  EXPECT_EQ(decay(R"(,"linear_lower_bound":-4)").lower_bound, -4.0f);
  EXPECT_FALSE(decay(R"(,"linear_lower_bound":null)").bounded);
  const std::string sizes = R"("head_dim":4,"num_heads":5,"short_conv_kernel_size":3)";
  const auto object = [&](const std::string& gate) {
    return decay(R"(,"linear_attn_config":{)" + sizes + gate + "}");
  };
  EXPECT_EQ(object("").heads, 5);
  EXPECT_EQ(object("").conv_kernel, 3);
  EXPECT_TRUE(object("").bounded) << "a missing bound is the default one";
  EXPECT_TRUE(object(R"(,"gate_lower_bound":null)").bounded);
  EXPECT_TRUE(object(R"(,"safe_gate":false)").bounded);
  EXPECT_FALSE(object(R"(,"safe_gate":false,"gate_lower_bound":null)").bounded);
}

TEST(Glm5Next, PoolsWithoutTailAndOfOneToken) {
  const auto indexer = [](std::string text) {
    const auto spec = build(text);
    EXPECT_TRUE(spec.is_ok()) << spec.status().message();
    return std::get<LatentAttentionSpec>(spec->layers[3].mixer).indexer;
  };
  EXPECT_EQ(indexer(config_text(R"(,"index_kpool_always_select_tail":false)")).width(), 8);
  std::string text = config_text();
  text.replace(text.find("\"index_kpool\":4"), 15, "\"index_kpool\":1");
  EXPECT_TRUE(indexer(text).is_pooled());
  EXPECT_EQ(indexer(text).width(), 8);
}

TEST(Glm5Next, DraftTensorsThatAreMissingAreNamed) {
  const Names names({"model.language_model.embed_tokens.weight"});
  EXPECT_THAT(build(config_text(), names).status().message(),
              HasSubstr("layers.4.eh_proj.weight' is missing"));
}

// A member of text_config replaced by another value, and what the error says.
struct BadNextField {
  const char* from;
  const char* to;
  const char* message;
};
class BadNextConfig : public ::testing::TestWithParam<BadNextField> {};

TEST_P(BadNextConfig, IsRefusedByKey) {
  std::string text = config_text();
  const std::string from = GetParam().from;
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos);
  text.replace(place, from.size(), GetParam().to);
  const auto spec = build(text);
  ASSERT_FALSE(spec.is_ok());
  EXPECT_THAT(spec.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(spec.status().message(), ::testing::StartsWith("config.json: text_config."));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadNextConfig,
    ::testing::Values(
        BadNextField{"\"qk_rope_head_dim\":0", "\"qk_rope_head_dim\":64", "a rotation is not"},
        BadNextField{"\"index_kpool\":4", "\"index_kpool\":3", "3 does not divide index_topk 8"},
        BadNextField{"\"index_kpool\":4", "\"index_kpool\":0", "index_kpool: must be"},
        BadNextField{"\"index_kpool\":4", "\"index_kpool\":\"4\"", "index_kpool: must be"},
        BadNextField{"\"index_kpool\":4,", "", "index_kpool: is missing"},
        BadNextField{"\"index_topk\":8,\"index_kpool\":4", "\"index_topk\":128,\"index_kpool\":128",
                     "index_kpool: must be"},
        BadNextField{"\"index_topk\":8,\"index_kpool\":4", "\"index_topk\":9,\"index_kpool\":3",
                     "3 is not supported; it must divide 64 and index_head_dim 16"},
        BadNextField{"\"index_topk\":8,\"index_kpool\":4", "\"index_topk\":64,\"index_kpool\":32",
                     "32 is not supported; it must divide 64 and index_head_dim 16"},
        BadNextField{"\"index_kpool\":4", "\"index_kpool_always_select_tail\":1,\"index_kpool\":4",
                     "must be true or false"},
        BadNextField{"\"hc_mult\":3", "\"hc_mult\":1", "hc_mult: must be"},
        BadNextField{"\"hc_mult\":3", "\"hc_mult\":9", "hc_mult: must be"},
        BadNextField{"\"hc_mult\":3,", "", "hc_mult: is missing"},
        BadNextField{"\"hc_mult\":3", "\"hc_mult\":3,\"hc_eps\":0", "hc_eps: must be"},
        BadNextField{"\"hc_mult\":3", "\"hc_mult\":3,\"hc_sinkhorn_iters\":0",
                     "hc_sinkhorn_iters: must be"},
        BadNextField{"\"swiglu_limit\":7.0", "\"swiglu_limit\":0", "swiglu_limit: must be"},
        BadNextField{"\"linear_num_heads\":3", "\"linear_num_heads\":0", "linear_num_heads: must"},
        BadNextField{"\"linear_head_dim\":8,", "", "linear_head_dim: is missing"},
        BadNextField{"\"linear_conv_kernel_dim\":4", "\"linear_conv_kernel_dim\":1", "at least 2"},
        BadNextField{"\"linear_head_dim\":8", "\"linear_head_dim\":8,\"linear_lower_bound\":5",
                     "linear_lower_bound: must be"},
        BadNextField{"\"linear_head_dim\":8", "\"linear_head_dim\":8,\"linear_attn_config\":{}",
                     "linear_attn_config.head_dim: is missing"},
        BadNextField{"\"num_hidden_layers\":4",
                     "\"num_hidden_layers\":4,\"layer_types\":[\"linear_attention\"]",
                     "has 1 entries for 4 layers"},
        BadNextField{"\"num_hidden_layers\":4,",
                     "\"num_hidden_layers\":1,\"layer_types\":[\"mamba\"],",
                     "unknown layer kind \"mamba\""},
        BadNextField{"\"num_hidden_layers\":4",
                     "\"num_hidden_layers\":4,\"indexer_types\":[\"full\"]",
                     "has 1 entries for 4 layers"},
        BadNextField{"\"num_hidden_layers\":4",
                     "\"num_hidden_layers\":4,"
                     "\"indexer_types\":[\"full\",\"full\",\"full\",\"shared\"]",
                     "layer 3 has \"shared\"; only full is supported"},
        BadNextField{"\"num_nextn_predict_layers\":1", "\"num_nextn_predict_layers\":2",
                     "more than one"}));

}  // namespace
}  // namespace motley
