// GLM-5, 5.1, 5.2: configuration, names, who has an indexer.
#include <gmock/gmock.h>

#include "spec/family_registry.h"
#include "spec/state_layout.h"
#include "support/glm_model.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  MOTLEY_CHECK(place != std::string::npos, "not in the configuration: " + from);
  return text.replace(place, from.size(), to);
}

Result<ModelSpec> build(const GlmTestModel& model, const std::string& text) {
  const auto config = ConfigJson::parse(text, "config.json");
  if (!config.is_ok()) return config.status();
  return build_model_spec(*config, model);
}

std::vector<KeySource> key_sources(const Result<ModelSpec>& spec) {
  EXPECT_TRUE(spec.is_ok()) << spec.status().message();
  std::vector<KeySource> sources;
  if (!spec.is_ok()) return sources;
  for (const LayerSpec& layer : spec->layers) {
    sources.push_back(std::get<LatentAttentionSpec>(layer.mixer).keys);
  }
  return sources;
}

TEST(Glm, BuildsLayersAndDraft) {
  const auto spec = build(GlmTestModel(), GlmTestModel::config());
  EXPECT_THAT(key_sources(spec), ElementsAre(KeySource::kOwn, KeySource::kShared, KeySource::kOwn));
  ASSERT_TRUE(spec.is_ok());
  EXPECT_EQ(spec->eos_tokens, (std::vector<int32_t>{3, 5}));
  const auto& latent = std::get<LatentAttentionSpec>(spec->layers[0].mixer);
  EXPECT_EQ(latent.cache_width(), 40);
  EXPECT_TRUE(latent.interleaved);
  EXPECT_FLOAT_EQ(latent.scale, 1 / std::sqrt(24.0f));
  EXPECT_EQ(latent.q_a_norm.epsilon, 1e-6f);
  EXPECT_EQ(latent.kv_a_norm.epsilon, 1e-6f);
  EXPECT_EQ(spec->layers[0].mixer_norm.epsilon, 1e-5f);
  EXPECT_EQ(latent.indexer.rotary_dim, 8);
  EXPECT_TRUE(std::holds_alternative<DenseMlpSpec>(spec->layers[0].feed_forward));
  const auto& moe = std::get<MoeSpec>(spec->layers[1].feed_forward);
  EXPECT_EQ(moe.router_kind, RouterKind::kSigmoid);
  EXPECT_EQ(moe.shared_intermediate_size, 64);
  EXPECT_EQ(moe.routed_scale, 2.5f);
  EXPECT_FALSE(moe.shared_expert_gate.is_set());
  ASSERT_EQ(spec->drafts.size(), 1u);
  EXPECT_TRUE(spec->drafts[0].zero_first_embedding);
  EXPECT_FALSE(spec->drafts[0].embedding.is_set());
  const auto& draft = std::get<LatentAttentionSpec>(spec->drafts[0].layer.mixer);
  EXPECT_EQ(draft.keys, KeySource::kOwn);
}

TEST(Glm, StateIsLatentsOfAllLayersAndKeysOfIndexers) {
  const auto spec = build(GlmTestModel(), GlmTestModel::config());
  ASSERT_TRUE(spec.is_ok());
  const StateLayout layout = make_state_layout(*spec, {.kv = DType::kBf16, .drafts = false});
  EXPECT_EQ(layout.bytes_per_token(), 2 * (3 * 40 + 2 * 16));
}

TEST(Glm, OwnHeadAndEmbeddingOfTheDraftAreUsedWhereTheFileHasThem) {
  GlmTestModel model;
  model.add("model.layers.3.embed_tokens.weight", {32, 64});
  model.add("model.layers.3.shared_head.head.weight", {32, 64});
  const auto spec = build(model, GlmTestModel::config());
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_TRUE(spec->drafts[0].embedding.is_set());
  EXPECT_TRUE(spec->drafts[0].head.is_set());
}

TEST(Glm, IndexersByPatternAndByFrequency) {
  const std::string list = R"("indexer_types":["full","shared","full"])";
  const auto with = [&](const std::string& fields) {
    return build(GlmTestModel(), replaced(GlmTestModel::config(), list, fields));
  };
  EXPECT_THAT(key_sources(with(R"("index_topk_pattern":"FSF")")),
              ElementsAre(KeySource::kOwn, KeySource::kShared, KeySource::kOwn));
  // max(i - 1 + 1, 0) % 2 == 0
  EXPECT_THAT(key_sources(with(R"("index_topk_freq":2,"index_skip_topk_offset":1)")),
              ElementsAre(KeySource::kOwn, KeySource::kShared, KeySource::kOwn));
}

TEST(Glm, AnIndexerOnALayerThatSharesOneIsRefusedByName) {
  GlmTestModel model;
  model.add("model.layers.1.self_attn.indexer.wk.weight", {16, 64});
  EXPECT_THAT(build(model, GlmTestModel::config()).status().message(),
              HasSubstr("'model.layers.1.self_attn.indexer.wk.weight' belongs to an indexer"));
}

TEST(Glm, MissingDraftTensorsAreRefusedByName) {
  GlmTestModel model;
  model.tensors.erase("model.layers.3.eh_proj.weight");
  EXPECT_THAT(build(model, GlmTestModel::config()).status().message(),
              HasSubstr("'model.layers.3.eh_proj.weight' is missing"));
  const auto without =
      build(model, replaced(GlmTestModel::config(), "predict_layers\":1", "predict_layers\":0"));
  ASSERT_TRUE(without.is_ok()) << without.status().message();
  EXPECT_TRUE(without->drafts.empty());
}

struct BadField {
  const char* from;
  const char* to;
  const char* message;
};
class BadGlmConfig : public ::testing::TestWithParam<BadField> {};

TEST_P(BadGlmConfig, IsRefusedByKey) {
  const auto spec =
      build(GlmTestModel(), replaced(GlmTestModel::config(), GetParam().from, GetParam().to));
  ASSERT_FALSE(spec.is_ok());
  EXPECT_THAT(spec.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(spec.status().message(), ::testing::StartsWith("config.json: "));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadGlmConfig,
    ::testing::Values(
        BadField{"\"kv_lora_rank\":32,", "", "kv_lora_rank: is missing"},
        BadField{"\"q_lora_rank\":48", "\"q_lora_rank\":null", "q_lora_rank"},
        BadField{"\"qk_rope_head_dim\":8", "\"qk_rope_head_dim\":7", "must be even"},
        BadField{"\"index_head_dim\":16", "\"index_head_dim\":4", "less than qk_rope_head_dim"},
        BadField{"\"index_topk\":8", "\"index_topk\":0", "index_topk: must be"},
        BadField{"[\"full\",\"shared\",\"full\"]", "[\"shared\",\"full\",\"full\"]",
                 "layer 0 shares the indexer of a layer before it"},
        BadField{"[\"full\",\"shared\",\"full\"]", "[\"full\",\"full\"]",
                 "has 2 entries for 3 layers"},
        BadField{"[\"full\",\"shared\",\"full\"]", "[\"full\",\"half\",\"full\"]",
                 "unknown indexer kind"},
        BadField{"[\"dense\",\"sparse\",\"sparse\"]", "[\"dense\"]", "has 1 entries for 3 layers"},
        BadField{"[\"dense\",\"sparse\",\"sparse\"]", "[\"dense\",\"thin\",\"sparse\"]",
                 "unknown layer kind"},
        BadField{"\"n_group\":1", "\"n_group\":3", "3 does not divide the 4 experts"},
        BadField{"\"topk_group\":1", "\"topk_group\":2", "2 of 1 groups"},
        BadField{"\"num_experts_per_tok\":2", "\"num_experts_per_tok\":5", "from 1 to 4, not 5"},
        BadField{"\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\"", "hidden_act"},
        BadField{"\"attention_bias\":false", "\"scoring_func\":\"softmax\"", "scoring_func"},
        BadField{"\"rope_theta\":10000.0",
                 "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1.0}", "rope_type"},
        BadField{"\"num_nextn_predict_layers\":1", "\"num_nextn_predict_layers\":2",
                 "more than one is not supported"}));

}  // namespace
}  // namespace motley
