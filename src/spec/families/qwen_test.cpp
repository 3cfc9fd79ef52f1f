// Qwen3.5-MoE and Qwen3-Next: configuration, names, layouts.
#include <gmock/gmock.h>

#include "spec/family_registry.h"
#include "support/qwen_model.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

Result<ModelSpec> build(const TestModel& model, const std::string& extra = "") {
  const auto config = ConfigJson::parse(model.config(extra), "config.json");
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return build_model_spec(*config, model);
}

const TensorSpec& tensor_named(const ModelSpec& spec, std::string_view name) {
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.name == name) return tensor;
  }
  MOTLEY_CHECK(false, "no such tensor");
}

TEST(Qwen, HuggingFaceLayout) {
  const auto spec = build(TestModel());
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->family, "qwen3_5_moe");
  EXPECT_EQ(spec->layers.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<GatedDeltaSpec>(spec->layers[2].mixer));
  EXPECT_TRUE(std::holds_alternative<GatedAttentionSpec>(spec->layers[3].mixer));
  EXPECT_EQ(spec->layers[0].mixer_norm.weight_offset, 1.0f);
  EXPECT_EQ(std::get<GatedDeltaSpec>(spec->layers[0].mixer).norm.weight_offset, 0.0f);
  EXPECT_EQ(std::get<GatedAttentionSpec>(spec->layers[3].mixer).rotary_dim, 8);
  EXPECT_EQ(spec->eos_tokens, (std::vector<int32_t>{3, 5}));
  EXPECT_NE(spec->head.index, spec->embedding.index);
  ASSERT_EQ(spec->drafts.size(), 1u);
  EXPECT_EQ(spec->drafts[0].layer.mixer_norm.weight_offset, 1.0f);
  EXPECT_EQ(spec->tensor(spec->drafts[0].projection).shape, (Shape{64, 128}));
  const TensorSpec& up = tensor_named(*spec, "layers.1.moe.experts.up");
  EXPECT_EQ(up.shape, (Shape{4, 32, 64}));
  ASSERT_EQ(up.pieces.size(), 1u);
  EXPECT_EQ(up.pieces[0].module, "model.language_model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_TRUE(up.pieces[0].bare);
  EXPECT_EQ(up.pieces[0].row_begin, 32);
  EXPECT_EQ(tensor_named(*spec, "drafts.0.layer.moe.experts.gate").part, "draft");
}

TEST(Qwen, ExpertsOneByOne) {
  const auto spec = build(TestModel({.separate = true}));
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  const TensorPiece& piece = tensor_named(*spec, "layers.1.moe.experts.down").pieces[0];
  EXPECT_EQ(piece.module, "model.language_model.layers.1.mlp.experts.{}.down_proj");
  EXPECT_FALSE(piece.bare);
}

TEST(Qwen, MlxLayoutHasTheOneAdded) {
  const auto spec = build(TestModel({.mlx = true, .quantized = MlxAffineFormat{4, 32}}));
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->layers[0].mixer_norm.weight_offset, 0.0f);
  EXPECT_EQ(spec->final_norm.weight_offset, 0.0f);
  EXPECT_EQ(spec->drafts[0].hidden_norm.weight_offset, 0.0f);
  EXPECT_EQ(tensor_named(*spec, "head").pieces[0].module, "language_model.lm_head");
  EXPECT_EQ(tensor_named(*spec, "drafts.0.layer.moe.experts.up").pieces[0].module,
            "mtp.layers.0.mlp.switch_mlp.up_proj");
}

TEST(Qwen, NextGathersRowsByKeyHead) {
  const auto spec = build(TestModel({.next = true}));
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  // Two key heads of 8, two value heads of 8 each: a group is q 8, k 8, v 16, z 16 rows.
  const auto begins = [&](std::string_view name) {
    std::vector<int64_t> rows;
    for (const TensorPiece& piece : tensor_named(*spec, name).pieces) {
      rows.push_back(piece.row_begin);
    }
    return rows;
  };
  EXPECT_EQ(begins("layers.0.delta.in_proj_qkv"), (std::vector<int64_t>{0, 48, 8, 56, 16, 64}));
  EXPECT_EQ(begins("layers.0.delta.in_proj_z"), (std::vector<int64_t>{32, 80}));
  EXPECT_EQ(begins("layers.0.delta.in_proj_b"), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(begins("layers.0.delta.in_proj_a"), (std::vector<int64_t>{2, 6}));
  EXPECT_TRUE(std::get<MoeSpec>(spec->layers[0].feed_forward).normalise);
  const auto raw = build(TestModel({.next = true}), R"(,"norm_topk_prob":false)");
  EXPECT_FALSE(std::get<MoeSpec>(raw->layers[0].feed_forward).normalise);
}

TEST(Qwen, NextMayHaveDenseLayers) {
  const TestModel model({.next = true});
  const auto spec = build(model, R"(,"mlp_only_layers":[2],"intermediate_size":96)");
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(spec->layers[1].feed_forward));
  EXPECT_EQ(std::get<DenseMlpSpec>(spec->layers[2].feed_forward).intermediate_size, 96);
  EXPECT_EQ(tensor_named(*spec, "layers.2.mlp.down").shape, (Shape{64, 96}));
  const auto stepped = build(model, R"(,"decoder_sparse_step":2,"intermediate_size":96)");
  EXPECT_TRUE(std::holds_alternative<DenseMlpSpec>(stepped->layers[0].feed_forward));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(stepped->layers[1].feed_forward));
  EXPECT_THAT(build(model, R"(,"mlp_only_layers":[2])").status().message(),
              HasSubstr("intermediate_size: is missing"));
}

TEST(Qwen, NamesTellTheLayoutWhereNoConvolutionDoes) {
  const auto offset = [](TestModelOptions options) {
    options.only_attention = true;
    const auto spec = build(TestModel(options));
    EXPECT_TRUE(spec.is_ok()) << spec.status().message();
    return spec.is_ok() ? spec->layers[0].mixer_norm.weight_offset : -1.0f;
  };
  EXPECT_EQ(offset({}), 1.0f);
  EXPECT_EQ(offset({.mlx = true}), 0.0f);
  EXPECT_EQ(offset({.next = true}), 1.0f);
  EXPECT_EQ(offset({.next = true, .mlx = true}), 0.0f);
}

TEST(Qwen, TiedHeadAndMissingDraft) {
  const auto spec = build(TestModel({.draft = false, .tied = true}));
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->head, spec->embedding);
  EXPECT_TRUE(spec->drafts.empty());
}

TEST(Qwen, DraftCanBeSwitchedOffByTheConfiguration) {
  const auto spec = build(TestModel(), R"(,"mtp_num_hidden_layers":0)");
  ASSERT_TRUE(spec.is_ok());
  EXPECT_TRUE(spec->drafts.empty());
  EXPECT_TRUE(std::any_of(spec->skipped.begin(), spec->skipped.end(),
                          [](const SkippedTensor& skip) { return skip.prefix == "mtp."; }));
}

TEST(Qwen, RefusesMixedLayouts) {
  TestModel model({.mlx = true});
  model.add_plain("language_model.model.layers.1.linear_attn.conv1d.weight", {64, 1, 4});
  EXPECT_THAT(build(model).status().message(), HasSubstr("layers.1.linear_attn.conv1d.weight"));

  TestModel renamed;  // Hugging Face names with MLX's convolution
  for (const char* layer : {"0", "1", "2"}) {
    renamed.add_plain(renamed.prefix + "layers." + layer + ".linear_attn.conv1d.weight",
                      {64, 4, 1});
  }
  EXPECT_THAT(build(renamed).status().message(), HasSubstr("a mix is refused"));

  TestModel experts;
  experts.add_plain(experts.prefix + "layers.2.mlp.switch_mlp.gate_proj.weight", {4, 32, 64});
  EXPECT_THAT(build(experts).status().message(), HasSubstr("layers.2.mlp.switch_mlp"));

  const TestModel quantized({.quantized = MlxAffineFormat{4, 32}});
  EXPECT_THAT(build(quantized).status().message(), HasSubstr("quantization: belongs to the MLX"));
}

TEST(Qwen, NamesTheTensorThatDecides) {
  TestModel model;
  model.tensors.erase(model.prefix + "layers.1.linear_attn.conv1d.weight");
  EXPECT_THAT(build(model).status().message(), HasSubstr("conv1d.weight' is missing"));
  TestModel empty;
  empty.tensors.clear();
  EXPECT_THAT(build(empty).status().message(), HasSubstr("embed_tokens.weight' is missing"));
}

// A member of text_config replaced by another value, and what the error says.
struct BadField {
  const char* from;
  const char* to;
  const char* message;
};
class BadQwenConfig : public ::testing::TestWithParam<BadField> {};

TEST_P(BadQwenConfig, IsRefusedByKey) {
  const TestModel model;
  std::string text = model.config(R"(,"attention_bias":false)");
  const std::string from = GetParam().from;
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos);
  text.replace(place, from.size(), GetParam().to);
  const auto config = ConfigJson::parse(text, "config.json");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  const auto spec = build_model_spec(*config, model);
  ASSERT_FALSE(spec.is_ok());
  EXPECT_THAT(spec.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(spec.status().message(), ::testing::StartsWith("config.json: "));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadQwenConfig,
    ::testing::Values(
        BadField{"qwen3_5_moe\"", "llama\"",
                 "unknown family \"llama\"; known are qwen3_5_moe, qwen3_5_moe_text, qwen3_next"},
        BadField{"\"hidden_size\":64", "\"hidden_size\":0", "text_config.hidden_size: must be"},
        BadField{"\"hidden_size\":64", "\"hidden_size\":1e3", "text_config.hidden_size: must be"},
        BadField{"\"hidden_size\":64,", "", "text_config.hidden_size: is missing"},
        BadField{"\"head_dim\":32,", "", "text_config.head_dim: is missing"},
        BadField{"\"num_experts_per_tok\":2", "\"num_experts_per_tok\":5", "from 1 to 4, not 5"},
        BadField{"\"num_experts\":4", "\"num_experts\":0", "text_config.num_experts: must be"},
        BadField{"\"num_experts\":4", "\"num_experts\":100000", "text_config.num_experts: must be"},
        BadField{"\"num_key_value_heads\":1", "\"num_key_value_heads\":3", "does not divide"},
        BadField{"\"linear_num_key_heads\":2", "\"linear_num_key_heads\":3", "does not divide"},
        BadField{"\"linear_conv_kernel_dim\":4", "\"linear_conv_kernel_dim\":1", "not supported"},
        BadField{"\"head_dim\":32", "\"head_dim\":12", "not a positive even number"},
        BadField{"\"head_dim\":32", "\"head_dim\":30", "not a positive even number"},
        BadField{"\"rope_theta\":10000.0", "\"rope_theta\":0", "rope_theta: must be"},
        BadField{"\"rope_theta\":10000.0", "\"rope_parameters\":{\"rope_type\":\"yarn\"}",
                 "text_config.rope_parameters.rope_type: \"yarn\" is not supported"},
        BadField{"\"num_hidden_layers\":4", "\"num_hidden_layers\":-1", "num_hidden_layers: must"},
        BadField{"\"num_hidden_layers\":4",
                 "\"num_hidden_layers\":4,\"layer_types\":[\"full_attention\"]",
                 "has 1 entries for 4 layers"},
        BadField{"\"num_hidden_layers\":4", "\"num_hidden_layers\":1,\"layer_types\":[\"mamba\"]",
                 "unknown layer kind \"mamba\""},
        BadField{"\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\"", "\"gelu\" is not supported"},
        BadField{"\"attention_bias\":false", "\"attention_bias\":true", "true is not supported"},
        BadField{"\"attention_bias\":false", "\"attn_output_gate\":false",
                 "false is not supported"},
        BadField{"\"attention_bias\":false", "\"mtp_num_hidden_layers\":2", "more than one"},
        BadField{"\"attention_bias\":false", "\"mtp_use_dedicated_embeddings\":true",
                 "true is not supported"},
        BadField{"\"attention_bias\":false", "\"rms_norm_eps\":0", "rms_norm_eps: must be"},
        BadField{"\"eos_token_id\":[3,5]", "\"eos_token_id\":[-3]", "eos_token_id: must be"},
        BadField{"\"eos_token_id\":[3,5]", "\"tie_word_embeddings\":7", "must be true or false"}));

}  // namespace
}  // namespace motley
