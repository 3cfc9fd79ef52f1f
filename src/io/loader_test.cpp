#include "io/loader.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/owned_context.h"
#include "support/model_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

std::string shared(std::string_view path) {
  return std::string(MOTLEY_SOURCE_DIR) + "/../shared/" + std::string(path);
}

void expect_file_accounted_for(const LoadedModel& model) {
  EXPECT_EQ(model.placement.total().file_bytes, model.weights.checkpoint().data_bytes());
}

TEST(Loader, TinyFixture) {
  const std::string path = shared("fixtures/tiny-qwen35");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  OwnedContext context(test_threads());
  const auto model = load_model(context.get(), path);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const ModelSpec& spec = model->spec;
  EXPECT_EQ(spec.family, "qwen3_5_moe");
  EXPECT_EQ(spec.layers.size(), 8u);
  EXPECT_EQ(spec.drafts.size(), 1u);
  EXPECT_EQ(spec.context_length, 4096);
  EXPECT_EQ(spec.eos_tokens, std::vector<int32_t>{2});
  EXPECT_EQ(spec.final_norm.weight_offset, 1.0f);
  const auto& delta = std::get<GatedDeltaSpec>(spec.layers[0].mixer);
  EXPECT_EQ(delta.norm.weight_offset, 0.0f);
  const auto& attention = std::get<GatedAttentionSpec>(spec.layers[3].mixer);
  EXPECT_EQ(attention.rotary_dim, 16);
  EXPECT_EQ(attention.rope_theta, 1e7);

  const LoadedWeights& weights = model->weights;
  const WeightMatrix& q_proj = weights.matrix(attention.q_proj);
  EXPECT_EQ(q_proj.rows, 512);
  EXPECT_EQ(q_proj.cols, 128);
  EXPECT_EQ(q_proj.format, WeightFormat::kBf16);
  // In place: the pointer is the mapping's.
  const auto* tensor =
      weights.checkpoint().find_tensor("model.language_model.layers.3.self_attn.q_proj.weight");
  EXPECT_EQ(q_proj.codes.data, tensor->bytes.data());
  // Expert 5: gate rows first, then up rows, of one stack.
  const auto& moe = std::get<MoeSpec>(spec.layers[0].feed_forward);
  const auto* stack =
      weights.checkpoint().find_tensor("model.language_model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(weights.expert(moe.gate, 5).codes.data, stack->bytes.data() + 5 * 128 * 128 * 2);
  EXPECT_EQ(weights.expert(moe.up, 5).codes.data, stack->bytes.data() + (5 * 128 + 64) * 128 * 2);
  EXPECT_EQ(weights.expert(moe.down, 15).rows, 128);
  EXPECT_EQ(weights.vector(delta.a_log).shape, (Shape{4}));
  EXPECT_EQ(weights.vector(delta.a_log).dtype, DType::kF32);
  EXPECT_EQ(weights.convolution(delta.convolution).shape, (Shape{256, 4}));
  expect_file_accounted_for(*model);
}

TEST(Loader, PocketModelInShards) {
  const std::string path = shared("models/pocket-qwen35");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  OwnedContext context(test_threads());
  int64_t last_done = 0;
  int64_t last_total = 0;
  const auto model = load_model(context.get(), path, {.progress = [&](int64_t done, int64_t total) {
                                  EXPECT_GE(done, last_done);
                                  last_done = done;
                                  last_total = total;
                                }});
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ(model->spec.eos_tokens, (std::vector<int32_t>{6137, 6135}));
  EXPECT_FALSE(model->generation.do_sample);
  EXPECT_EQ(model->weights.checkpoint().shard_count(), 3u);
  EXPECT_GT(last_total, 40'000'000);
  EXPECT_EQ(last_done, last_total);
  expect_file_accounted_for(*model);
}

// Loads a made-up model from a directory of its own.
class LoaderTest : public ::testing::Test {
 protected:
  Result<LoadedModel> load(const TestModel& model) {
    write_model(model, directory_);
    return load_model(context_.get(), directory_.path());
  }
  std::string error(const TestModel& model) {
    const auto loaded = load(model);
    EXPECT_FALSE(loaded.is_ok());
    const std::string message = loaded.status().message();
    EXPECT_THAT(message, ::testing::StartsWith(directory_.path()));
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

  TemporaryDirectory directory_;
  OwnedContext context_{test_threads()};
};

// Rows of `matrix` against rows of the plain tensor `name`, from row `first`.
void expect_rows(const WeightMatrix& matrix, int64_t row, std::string_view name, int64_t first,
                 int64_t count) {
  std::vector<float> values(static_cast<size_t>(matrix.cols));
  for (int64_t i = 0; i < count; ++i) {
    decode_row(matrix, row + i, values.data());
    for (int64_t col = 0; col < matrix.cols; ++col) {
      ASSERT_EQ(values[static_cast<size_t>(col)], test_value(name, (first + i) * matrix.cols + col))
          << name << " row " << first + i << " column " << col;
    }
  }
}

TEST_F(LoaderTest, NextIsUngroupedValueByValue) {
  const auto model = load(TestModel({.next = true}));
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  expect_file_accounted_for(*model);
  const auto& delta = std::get<GatedDeltaSpec>(model->spec.layers[1].mixer);
  const std::string module = "model.layers.1.linear_attn.";
  const WeightMatrix& qkv = model->weights.matrix(delta.in_proj_qkv);
  const WeightMatrix& z = model->weights.matrix(delta.in_proj_z);
  const WeightMatrix& b = model->weights.matrix(delta.in_proj_b);
  const WeightMatrix& a = model->weights.matrix(delta.in_proj_a);
  ASSERT_EQ(qkv.rows, 64);
  constexpr int64_t kDim = 8;  // of every head
  for (int64_t head = 0; head < 2; ++head) {
    expect_rows(qkv, head * kDim, module + "in_proj_qkvz.weight", head * 48, kDim);
    expect_rows(qkv, 16 + head * kDim, module + "in_proj_qkvz.weight", head * 48 + 8, kDim);
  }
  // Value head h belongs to key head h / 2 and is number h % 2 of its group.
  for (int64_t head = 0; head < 4; ++head) {
    const int64_t group = head / 2;
    const int64_t within = head % 2;
    expect_rows(qkv, 32 + head * kDim, module + "in_proj_qkvz.weight",
                group * 48 + 16 + within * kDim, kDim);
    expect_rows(z, head * kDim, module + "in_proj_qkvz.weight", group * 48 + 32 + within * kDim,
                kDim);
    expect_rows(b, head, module + "in_proj_ba.weight", group * 4 + within, 1);
    expect_rows(a, head, module + "in_proj_ba.weight", group * 4 + 2 + within, 1);
  }
  // Copies are aligned for vector loads; separate experts stay in place.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(qkv.codes.data) % 64, 0u);
  const auto& moe = std::get<MoeSpec>(model->spec.layers[1].feed_forward);
  expect_rows(model->weights.expert(moe.up, 3), 0, "model.layers.1.mlp.experts.3.up_proj.weight", 0,
              32);
  for (const PlacementRow& row : model->placement.rows) {
    const bool gathered = row.name.find("in_proj_") != row.name.npos;
    if (gathered || row.part == "experts") {
      EXPECT_EQ(row.where, gathered ? PlacementKind::kCopied : PlacementKind::kMapped) << row.name;
    }
  }
}

TEST_F(LoaderTest, HuggingFaceStacksAndVectors) {
  const TestModel test;
  const auto model = load(test);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  expect_file_accounted_for(*model);
  const auto& moe = std::get<MoeSpec>(model->spec.layers[2].feed_forward);
  const std::string stack = test.prefix + "layers.2.mlp.experts.gate_up_proj";
  expect_rows(model->weights.expert(moe.gate, 3), 0, stack, 3 * 64, 32);
  expect_rows(model->weights.expert(moe.up, 3), 0, stack, 3 * 64 + 32, 32);
  const auto& delta = std::get<GatedDeltaSpec>(model->spec.layers[2].mixer);
  const ConstTensorView a_log = model->weights.vector(delta.a_log);
  const ConstTensorView window = model->weights.convolution(delta.convolution);
  ASSERT_EQ(window.shape, (Shape{64, 4}));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(a_log.as<float>()[i], test_value(test.prefix + "layers.2.linear_attn.A_log", i));
    EXPECT_EQ(window.row<float>(63)[i],
              test_value(test.prefix + "layers.2.linear_attn.conv1d.weight", 63 * 4 + i));
  }
}

class AffineLoaderTest : public LoaderTest,
                         public ::testing::WithParamInterface<MlxAffineFormat> {};

TEST_P(AffineLoaderTest, MlxStacksAndOverrides) {
  for (const bool next : {false, true}) {
    const TestModel test({.next = next,
                          .mlx = true,
                          .quantized = GetParam(),
                          .router_quantized = MlxAffineFormat{8, 64}});
    const auto model = load(test);
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    expect_file_accounted_for(*model);
    const auto& moe = std::get<MoeSpec>(model->spec.layers[3].feed_forward);
    const WeightMatrix& router = model->weights.matrix(moe.router);
    EXPECT_EQ(router.affine, (MlxAffineFormat{8, 64}));
    const WeightMatrix& down = model->weights.expert(moe.down, 2);
    EXPECT_EQ(down.format, WeightFormat::kMlxAffine);
    EXPECT_EQ(down.affine, GetParam());
    EXPECT_EQ(down.scale_dtype, DType::kBf16);
    const std::string module = test.prefix + "layers.3.mlp.switch_mlp.down_proj.";
    const auto* codes = model->weights.checkpoint().find_tensor(module + "weight");
    const auto* biases = model->weights.checkpoint().find_tensor(module + "biases");
    EXPECT_EQ(down.codes.data, codes->bytes.data() + codes->bytes.size() / 2);
    EXPECT_EQ(down.biases.data, biases->bytes.data() + biases->bytes.size() / 2);
    // A gathered matrix decodes to the rows of its source, whatever the format.
    if (next) {
      const auto& delta = std::get<GatedDeltaSpec>(model->spec.layers[0].mixer);
      const WeightMatrix& z = model->weights.matrix(delta.in_proj_z);
      WeightMatrix source = z;
      const std::string fused = "model.layers.0.linear_attn.in_proj_qkvz.";
      const auto data = [&](const char* plane) {
        return model->weights.checkpoint().find_tensor(fused + plane)->bytes.data();
      };
      source.rows = 96;
      source.codes.data = data("weight");
      source.scales.data = data("scales");
      source.biases.data = data("biases");
      std::vector<float> got(64);
      std::vector<float> wanted(64);
      for (int64_t row = 0; row < 32; ++row) {
        decode_row(z, row, got.data());
        decode_row(source, row / 16 * 48 + 32 + row % 16, wanted.data());
        EXPECT_EQ(got, wanted) << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AffineLoaderTest,
                         ::testing::Values(MlxAffineFormat{2, 32}, MlxAffineFormat{3, 32},
                                           MlxAffineFormat{4, 32}, MlxAffineFormat{5, 32},
                                           MlxAffineFormat{6, 32}, MlxAffineFormat{8, 32}));

TEST_F(LoaderTest, TiedHeadSharesTheEmbedding) {
  TestModel test({.tied = true});
  const auto model = load(test);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ(model->weights.matrix(model->spec.head).codes.data,
            model->weights.matrix(model->spec.embedding).codes.data);
  test.add_plain("lm_head.weight", {32, 64});
  const auto copied = load(test);
  ASSERT_TRUE(copied.is_ok()) << copied.status().message();
  EXPECT_EQ(copied->placement.rows.back().where, PlacementKind::kTied);
  expect_file_accounted_for(*copied);
}

TEST_F(LoaderTest, SkipsTheVisionTowerWithAReason) {
  TestModel test;
  test.add_plain("model.visual.blocks.0.attn.qkv.weight", {6, 2});
  const auto model = load(test);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const PlacementRow& row = model->placement.rows.back();
  EXPECT_EQ(row.name, "model.visual.blocks.0.attn.qkv.weight");
  EXPECT_EQ(row.where, PlacementKind::kSkipped);
  EXPECT_EQ(row.memory_bytes, 0);
  EXPECT_THAT(row.reason, HasSubstr("vision"));
  expect_file_accounted_for(*model);
}

TEST_F(LoaderTest, RefusesStrayMissingAndMisshapenTensors) {
  TestModel stray;
  for (int i = 0; i < 7; ++i) stray.add_plain("stray." + std::to_string(i), {1});
  EXPECT_THAT(error(stray), HasSubstr("7 tensors are not part of this model: stray.0, stray.1, "
                                      "stray.2, stray.3, stray.4 and 2 more"));
  TestModel missing({.separate = true});
  missing.tensors.erase(missing.prefix + "layers.0.mlp.experts.2.up_proj.weight");
  EXPECT_THAT(error(missing), HasSubstr("1 tensor is missing: model.language_model.layers.0.mlp."
                                        "experts.2.up_proj.weight"));
  TestModel shape;
  shape.add_plain(shape.prefix + "layers.3.self_attn.k_proj.weight", {31, 64});
  EXPECT_THAT(error(shape),
              HasSubstr("model.safetensors: tensor 'model.language_model.layers.3.self_attn.k_proj."
                        "weight': shape [31, 64], config.json needs [32, 64]"));
  TestModel flat;
  flat.add_plain(flat.prefix + "layers.0.mlp.experts.gate_up_proj", {4 * 64, 64});
  EXPECT_THAT(error(flat), HasSubstr("shape [256, 64], config.json needs [4, 64, 64]"));
  TestModel type;
  type.tensors[type.prefix + "norm.weight"].dtype = DType::kI16;
  EXPECT_THAT(error(type), HasSubstr("norm.weight': element type I16"));
  TestModel infinite;
  infinite.tensors[infinite.prefix + "norm.weight"].bytes[1] = std::byte{0x7F};
  infinite.tensors[infinite.prefix + "norm.weight"].bytes[0] = std::byte{0x80};
  EXPECT_THAT(error(infinite), HasSubstr("norm' holds NaN or infinity"));
}

TEST_F(LoaderTest, RefusesQuantisationThatContradictsTheShapes) {
  const TestModelOptions options{.mlx = true, .quantized = MlxAffineFormat{4, 32}};
  const TestModel good(options);
  const std::string q_proj = good.prefix + "layers.3.self_attn.q_proj";
  TestModel groups(options);
  groups.add_plain(q_proj + ".scales", {128, 1});
  groups.add_plain(q_proj + ".biases", {128, 1});
  EXPECT_THAT(error(groups), HasSubstr("q_proj.weight': holds 4 bits in groups of 64, config.json "
                                       "says 4 in 32"));
  TestModel no_biases(options);
  no_biases.tensors.erase(q_proj + ".biases");
  EXPECT_THAT(error(no_biases), HasSubstr("1 tensor is missing: " + q_proj + ".biases"));
  TestModel biases(options);
  biases.add_plain(q_proj + ".biases", {128, 2}, DType::kF32);
  EXPECT_THAT(error(biases), HasSubstr("scales and biases differ in element type"));
  TestModel codes(options);
  codes.tensors[q_proj + ".weight"].dtype = DType::kI32;
  EXPECT_THAT(error(codes), HasSubstr("element type I32, but MLX codes are U32"));
  TestModel words(options);
  words.tensors[q_proj + ".weight"] = {
      DType::kU32, {128, 14}, std::vector<std::byte>(128 * 14 * 4)};
  EXPECT_THAT(error(words), HasSubstr("are no MLX format"));
  TestModel router(options);  // an override says that it is not quantised
  const std::string gate = good.prefix + "layers.1.mlp.gate";
  router.add_plain(gate + ".scales", {4, 2});
  router.add_plain(gate + ".biases", {4, 2});
  router.tensors[gate + ".weight"] = {DType::kU32, {4, 8}, std::vector<std::byte>(4 * 8 * 4)};
  EXPECT_THAT(error(router), HasSubstr("config.json does not say that this is quantised"));
  TestModel norm(options);
  norm.add_plain(good.prefix + "norm.scales", {64});
  norm.add_plain(good.prefix + "norm.biases", {64});
  EXPECT_THAT(error(norm), HasSubstr("only matrices may be quantised"));
  TestModel nan(options);
  auto& scales = nan.tensors[q_proj + ".scales"].bytes;
  scales[11] = std::byte{0x7F};
  scales[10] = std::byte{0xC0};
  EXPECT_THAT(error(nan), HasSubstr("q_proj.scales' holds NaN or infinity"));
}

TEST_F(LoaderTest, ClaimsOfMillionsOfExpertsAreRefusedQuickly) {
  TestModel test({.separate = true});
  write_model(test, directory_);
  std::string config = test.config();
  const std::string from = "\"num_experts\":4";
  config.replace(config.find(from), from.size(), "\"num_experts\":4096");
  directory_.write("config.json", config);
  const auto loaded = load_model(context_.get(), directory_.path());
  EXPECT_THAT(loaded.status().message(), HasSubstr("at least 10000 tensors are missing"));
}

TEST_F(LoaderTest, ConfigurationErrorsNameTheFile) {
  const TestModel test;
  write_model(test, directory_);
  const auto error_of = [&](std::string_view file, std::string_view text) {
    directory_.write(file, text);
    return load_model(context_.get(), directory_.path()).status().message();
  };
  EXPECT_THAT(error_of("generation_config.json", R"({"top_p":2})"),
              HasSubstr("/generation_config.json: top_p: must be"));
  std::filesystem::remove(directory_ / "generation_config.json");
  EXPECT_THAT(error_of("config.json", "{"), HasSubstr("/config.json: not valid JSON"));
  EXPECT_THAT(error_of("config.json", R"({"model_type":"gpt2"})"),
              HasSubstr("/config.json: model_type: unknown family \"gpt2\""));
  std::filesystem::remove(directory_ / "config.json");
  EXPECT_THAT(load_model(context_.get(), directory_.path()).status().message(),
              HasSubstr("/config.json: no such file"));
}

TEST_F(LoaderTest, AnEndTokenBeyondTheVocabularyIsRefused) {
  const TestModel test;
  write_model(test, directory_);
  directory_.write("generation_config.json", R"({"eos_token_id":[1,100000000]})");
  EXPECT_THAT(open_model(context_.get(), directory_.path()).status().message(),
              HasSubstr("generation_config.json: eos_token_id 100000000 is beyond the vocabulary"));
}

TEST_F(LoaderTest, EosIsTheUnionOfBothFiles) {
  const TestModel test;
  write_model(test, directory_);
  directory_.write("generation_config.json", R"({"eos_token_id":[5,9],"do_sample":true})");
  const auto model = load_model(context_.get(), directory_.path());
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ(model->spec.eos_tokens, (std::vector<int32_t>{3, 5, 9}));
  EXPECT_TRUE(model->generation.do_sample);
}

TEST_F(LoaderTest, PlanningReadsTheSameLedger) {
  write_model(TestModel({.next = true}), directory_);
  const auto opened = open_model(context_.get(), directory_.path());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const auto planned = place_model(*opened);
  const auto loaded = load_model(context_.get(), directory_.path(), {.populate = false});
  ASSERT_TRUE(planned.is_ok() && loaded.is_ok());
  ASSERT_EQ(planned->rows.size(), loaded->placement.rows.size());
  EXPECT_EQ(planned->total().memory_bytes, loaded->placement.total().memory_bytes);
  int64_t of_parts = 0;
  for (const PlacementTotal& part : planned->by_part()) of_parts += part.memory_bytes;
  EXPECT_EQ(of_parts, planned->total().memory_bytes);
  EXPECT_EQ(planned->by_kind().size(), 2u);
  EXPECT_EQ(planned->by_format().size(), 2u);  // bf16, and float32 for A_log
}

}  // namespace
}  // namespace motley
