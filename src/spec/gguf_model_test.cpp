#include "spec/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "spec/gguf_names.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Names and shapes alone.
class Names final : public TensorCatalog {
 public:
  const CatalogEntry* find(std::string_view name) const override {
    const auto found = entries.find(name);
    return found == entries.end() ? nullptr : &found->second;
  }
  std::map<std::string, CatalogEntry, std::less<>> entries;
};

Names plain_names() {
  Names names;
  names.entries["token_embd.weight"] = {.dtype = DType::kF32, .shape = {320, 64}};
  names.entries["output.weight"] = {.dtype = DType::kF32, .shape = {320, 64}};
  return names;
}

// Three layers, the third of attention; four value heads of 16 for two key heads.
GgufMetadata keys_of(const std::string& arch, uint64_t drafts = 0) {
  GgufMetadata keys;
  keys.add("general.architecture", arch);
  const std::map<std::string, uint64_t> numbers = {{"block_count", 3 + drafts},
                                                   {"context_length", 4096},
                                                   {"embedding_length", 64},
                                                   {"attention.head_count", 4},
                                                   {"attention.head_count_kv", 2},
                                                   {"attention.key_length", 32},
                                                   {"attention.value_length", 32},
                                                   {"rope.dimension_count", 8},
                                                   {"full_attention_interval", 3},
                                                   {"expert_count", 8},
                                                   {"expert_used_count", 2},
                                                   {"expert_feed_forward_length", 32},
                                                   {"expert_shared_feed_forward_length", 48},
                                                   {"ssm.conv_kernel", 4},
                                                   {"ssm.state_size", 24},
                                                   {"ssm.group_count", 2},
                                                   {"ssm.time_step_rank", 4},
                                                   {"ssm.inner_size", 64}};
  for (const auto& [key, value] : numbers) keys.add(arch + "." + key, value);
  if (drafts > 0) keys.add(arch + ".nextn_predict_layers", drafts);
  keys.add(arch + ".attention.layer_norm_rms_epsilon", 1e-6f);
  keys.add(arch + ".rope.freq_base", 1e7f);
  keys.add("tokenizer.ggml.eos_token_id", uint64_t{7});
  keys.add("tokenizer.ggml.eot_token_id", uint64_t{9});
  MOTLEY_CHECK(keys.sort().is_ok(), "a key twice");
  return keys;
}

Result<ModelSpec> spec_of(const GgufMetadata& keys, const Names& names) {
  MOTLEY_ASSIGN_OR_RETURN(const GgufModelPlan plan, plan_gguf_model(keys, names));
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson config, ConfigJson::parse(plan.config, "keys"));
  return build_gguf_spec(config, plan, names);
}

std::vector<int64_t> rows_of(const TensorSpec& tensor) {
  std::vector<int64_t> rows;
  for (const TensorPiece& piece : tensor.pieces) {
    for (int64_t i = 0; i < piece.row_count; ++i) rows.push_back(piece.row_begin + i);
  }
  return rows;
}

TEST(GgufModel, KeysBecomeASpec) {
  const auto spec = spec_of(keys_of("qwen35moe"), plain_names());
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->family, "qwen3_5_moe");
  EXPECT_EQ(spec->vocab_size, 320);
  EXPECT_EQ(spec->context_length, 4096);
  EXPECT_THAT(spec->eos_tokens, ElementsAre(7, 9));
  ASSERT_EQ(spec->layers.size(), 3u);
  const auto& delta = std::get<GatedDeltaSpec>(spec->layers[0].mixer);
  EXPECT_EQ(delta.key_head_dim, 24);
  EXPECT_EQ(delta.value_head_dim, 16);
  EXPECT_FLOAT_EQ(spec->layers[0].mixer_norm.epsilon, 1e-6f);
  const auto& attention = std::get<GatedAttentionSpec>(spec->layers[2].mixer);
  EXPECT_EQ(attention.rotary_dim, 8);
  EXPECT_EQ(attention.rope_theta, 1e7);
  const auto& moe = std::get<MoeSpec>(spec->layers[1].feed_forward);
  EXPECT_EQ(moe.shared_intermediate_size, 48);
  EXPECT_EQ(spec->tensor(moe.down).pieces.front().module, "blk.1.ffn_down_exps");
  EXPECT_EQ(spec->tensor(moe.shared_expert_gate).pieces.front().module, "blk.1.ffn_gate_inp_shexp");
  EXPECT_TRUE(spec->tensor(delta.a_log).pieces.front().bare);
  EXPECT_EQ(spec->tensor(delta.dt_bias).pieces.front().module, "blk.0.ssm_dt.bias");
}

TEST(GgufModel, ValueHeadsArePutBack) {
  const auto spec = spec_of(keys_of("qwen35moe"), plain_names());
  ASSERT_TRUE(spec.is_ok());
  const auto& delta = std::get<GatedDeltaSpec>(spec->layers[1].mixer);
  // Heads 0 and 1 belong to key head 0; stored are heads 0, 2, 1, 3.
  EXPECT_THAT(rows_of(spec->tensor(delta.in_proj_b)), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(rows_of(spec->tensor(delta.a_log)), ElementsAre(0, 2, 1, 3));
  const std::vector<int64_t> qkv = rows_of(spec->tensor(delta.in_proj_qkv));
  ASSERT_EQ(qkv.size(), 2u * 48 + 64);
  EXPECT_EQ(qkv[95], 95);  // q and k stay
  EXPECT_EQ(qkv[96], 96);
  EXPECT_EQ(qkv[96 + 16], 96 + 32);
  EXPECT_EQ(qkv[96 + 32], 96 + 16);
  EXPECT_EQ(qkv[96 + 48], 96 + 48);
  EXPECT_EQ(rows_of(spec->tensor(delta.convolution)), qkv);
  const auto plan = plan_gguf_model(keys_of("qwen35moe"), plain_names());
  EXPECT_EQ(plan->tiled_columns.at("blk.1.ssm_out.weight"),
            (TiledHeads{.width = 16, .key_heads = 2, .per_key = 2}));
  EXPECT_THAT(plan->negative_exponentials, ElementsAre("blk.0.ssm_a", "blk.1.ssm_a"));
}

TEST(GgufModel, Qwen3NextTakesGatesFromTheirGroups) {
  Names names = plain_names();
  for (const char* layer : {"0", "1"}) {
    names.entries[std::string("blk.") + layer + ".ssm_ba.weight"] = {.shape = {8, 64}};
  }
  const auto spec = spec_of(keys_of("qwen3next"), names);
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  const auto& delta = std::get<GatedDeltaSpec>(spec->layers[0].mixer);
  EXPECT_EQ(spec->tensor(delta.in_proj_b).pieces.front().module, "blk.0.ssm_ba");
  EXPECT_THAT(rows_of(spec->tensor(delta.in_proj_b)), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(rows_of(spec->tensor(delta.in_proj_a)), ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(spec->tensor(delta.in_proj_qkv).pieces.size(), 1u);
  EXPECT_THAT(rows_of(spec->tensor(delta.a_log)), ElementsAre(0, 1, 2, 3));
}

TEST(GgufModel, TheDraftLayerIsBehindTheTrunk) {
  Names names = plain_names();
  names.entries["blk.3.nextn.eh_proj.weight"] = {.shape = {64, 128}};
  const auto spec = spec_of(keys_of("qwen35moe", 1), names);
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  ASSERT_EQ(spec->drafts.size(), 1u);
  EXPECT_EQ(spec->tensor(spec->drafts[0].hidden_norm.weight).pieces.front().module,
            "blk.3.nextn.hnorm");
  const auto& moe = std::get<MoeSpec>(spec->drafts[0].layer.feed_forward);
  EXPECT_EQ(spec->tensor(moe.router).pieces.front().module, "blk.3.ffn_gate_inp");
  // Files of the trunk alone keep the number.
  EXPECT_TRUE(spec_of(keys_of("qwen35moe", 1), plain_names())->drafts.empty());
}

TEST(GgufModel, UnknownArchitecturesAreNamed) {
  GgufMetadata keys;
  keys.add("general.architecture", std::string("llama"));
  EXPECT_THAT(check_gguf_architecture(keys).message(),
              HasSubstr("\"llama\" is not supported; known are qwen35moe, qwen3next"));
  EXPECT_EQ(check_gguf_architecture({}).code(), StatusCode::kNotFound);
  TensorSpec tensor{.name = "layers.0.mixer_hyper.fn", .shape = {4, 4}, .pieces = {{}}};
  EXPECT_THAT(rename_for_gguf(1, Names{}, &tensor).message(), HasSubstr("have no name for"));
}

}  // namespace
}  // namespace motley
