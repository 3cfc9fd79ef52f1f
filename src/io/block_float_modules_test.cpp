// Checkpoints with block-scaled floats: every spelling, every contradiction, every bad scale.
#include "io/block_float_modules.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/owned_context.h"
#include "io/loader.h"
#include "support/model_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr FloatSpelling kSpellings[] = {FloatSpelling::kFp8, FloatSpelling::kNvfp4,
                                        FloatSpelling::kNvfp4Packed, FloatSpelling::kMxfp4Packed};

TestModel model_of(FloatSpelling spelling) {
  return TestModel({.separate = true, .spelling = spelling});
}

template <typename T>
TestTensor tensor_of(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  TestTensor tensor{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class BlockFloatModules : public ::testing::Test {
 protected:
  Result<LoadedModel> load(const TestModel& model, const LoadOptions& options = {}) {
    write_model(model, directory_);
    return load_model(context_.get(), directory_.path(), options);
  }
  std::string error(const TestModel& model) {
    const auto loaded = load(model);
    EXPECT_FALSE(loaded.is_ok());
    const std::string message = loaded.status().message();
    EXPECT_THAT(message, ::testing::StartsWith(directory_.path()));
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  // As model_of(), but config.json says `text` of its quantisation.
  std::string error_with_config(FloatSpelling spelling, const std::string& text) {
    const TestModel model = model_of(spelling);
    write_model(model, directory_);
    std::string config = model.config();
    const size_t begin = config.find("\"quantization_config\"");
    config.replace(begin, config.find('}', begin) + 1 - begin, "\"quantization_config\":" + text);
    directory_.write("config.json", config);
    return load_model(context_.get(), directory_.path()).status().message();
  }

  TemporaryDirectory directory_;
  OwnedContext context_{test_threads()};
  const std::string q_proj_ = "model.language_model.layers.3.self_attn.q_proj";
  const std::string expert_ = "model.language_model.layers.1.mlp.experts.2.down_proj";
};

// Value [row][col] as TestModel stores it.
float expected_value(const BlockFloatTensors& names, int64_t row, int64_t col, int64_t cols) {
  const BlockFloatFormat format = block_float_format(names.kind);
  const int64_t byte = row * format.row_bytes(cols) + format.row_bytes(col);
  const auto code = static_cast<uint8_t>(byte % 127);
  const bool fp4 = format.element == BlockFloatFormat::Element::kE2M1;
  const float element = block_float_element(format.element, &code, fp4 ? col % 2 : 0);
  const int64_t block = row / format.block_rows * format.blocks(cols) + col / format.block_cols;
  const float scale = block % 2 == 0 ? 0.5f : 2.0f;
  return element * scale * (names.tensor_scale.empty() ? 1.0f : 0.25f);
}

TEST_F(BlockFloatModules, EverySpellingHasItsValuesAndItsBytes) {
  for (const FloatSpelling spelling : kSpellings) {
    const TestModel test = model_of(spelling);
    const BlockFloatTensors names = spelled(spelling, expert_);
    for (const bool streamed : {false, true}) {
      const auto model = load(test, {.stream_experts = streamed});
      ASSERT_TRUE(model.is_ok()) << model.status().message();
      EXPECT_EQ(model->placement.total().file_bytes, model->weights.checkpoint().data_bytes());
      const auto& attention = std::get<GatedAttentionSpec>(model->spec.layers[3].mixer);
      const auto& moe = std::get<MoeSpec>(model->spec.layers[1].feed_forward);
      const WeightMatrix& down = model->weights.expert(moe.down, 2);
      EXPECT_EQ(down.tensor_scale, names.tensor_scale.empty() ? 1.0f : 0.25f);
      const WeightMatrix& q_proj = model->weights.matrix(attention.q_proj);
      EXPECT_EQ(q_proj.format, WeightFormat::kBlockFloat);
      for (const WeightMatrix* matrix : {&q_proj, &down}) {
        std::vector<float> row(static_cast<size_t>(matrix->cols));
        for (int64_t r = 0; r < matrix->rows; ++r) {
          decode_row(*matrix, r, row.data());
          for (int64_t c = 0; c < matrix->cols; ++c) {
            // E4M3 code 127 does not occur, so all are numbers.
            ASSERT_EQ(row[static_cast<size_t>(c)], expected_value(names, r, c, matrix->cols))
                << float_kind_name(names.kind) << " " << r << " " << c;
          }
        }
      }
    }
  }
}

TEST_F(BlockFloatModules, PlanningCountsTheSameBytes) {
  for (const FloatSpelling spelling : kSpellings) {
    write_model(model_of(spelling), directory_);
    const auto opened = open_model(context_.get(), directory_.path());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    const auto planned = place_model(*opened);
    ASSERT_TRUE(planned.is_ok());
    EXPECT_EQ(planned->total().file_bytes, opened->checkpoint.data_bytes());
    bool seen = false;
    for (const PlacementRow& row : planned->rows) {
      seen |= row.format.starts_with(float_kind_name(spelled(spelling, "").kind));
    }
    EXPECT_TRUE(seen);
  }
}

TEST_F(BlockFloatModules, ScalesOfActivationsAreSkippedWithAReason) {
  TestModel test = model_of(FloatSpelling::kNvfp4);
  test.tensors[q_proj_ + ".input_scale"] = tensor_of<float>(DType::kF32, {}, {0.1f});
  test.tensors["model.language_model.layers.3.self_attn.k_proj.k_scale"] =
      tensor_of<float>(DType::kF32, {}, {0.1f});
  const auto model = load(test);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  int skipped = 0;
  for (const PlacementRow& row : model->placement.rows) {
    if (row.where != PlacementKind::kSkipped) continue;
    ++skipped;
    EXPECT_THAT(row.reason, HasSubstr("static scale of"));
  }
  EXPECT_EQ(skipped, 2);
  TestModel stray = model_of(FloatSpelling::kNvfp4);
  stray.tensors["model.nobody.input_scale"] = tensor_of<float>(DType::kF32, {}, {0.1f});
  EXPECT_THAT(error(stray), HasSubstr("not part of this model: model.nobody.input_scale"));
}

// compressed-tensors spells fp8 with one scale for the tensor or for each row, too.
TEST_F(BlockFloatModules, Fp8BlocksFollowFromTheShapeOfTheScales) {
  struct Case {
    std::vector<int64_t> shape;
    int64_t block_rows;
    int64_t block_cols;
  };
  for (const Case& wanted : {Case{{}, 128, 64}, Case{{1}, 128, 64}, Case{{128, 1}, 1, 64},
                             Case{{128}, 1, 64}, Case{{1, 1}, 128, 64}}) {
    TestModel test = model_of(FloatSpelling::kFp8);
    test.tensors.erase(q_proj_ + ".weight_scale_inv");
    int64_t count = 1;
    for (const int64_t dim : wanted.shape) count *= dim;
    std::vector<Bf16> scales(static_cast<size_t>(count), to_bf16(3.0f));
    test.tensors[q_proj_ + ".weight_scale"] = tensor_of(DType::kBf16, wanted.shape, scales);
    const auto model = load(test);
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    const auto& attention = std::get<GatedAttentionSpec>(model->spec.layers[3].mixer);
    const WeightMatrix& q_proj = model->weights.matrix(attention.q_proj);
    EXPECT_EQ(q_proj.block.block_rows, wanted.block_rows);
    EXPECT_EQ(q_proj.block.block_cols, wanted.block_cols);
    std::vector<float> row(64);
    decode_row(q_proj, 127, row.data());
    const auto code = static_cast<uint8_t>((127 * 64 + 5) % 127);
    EXPECT_EQ(row[5], 3.0f * to_float(E4M3{code}));
  }
  TestModel odd = model_of(FloatSpelling::kFp8);
  odd.tensors.erase(q_proj_ + ".weight_scale_inv");
  odd.tensors[q_proj_ + ".weight_scale"] =
      tensor_of<float>(DType::kF32, {2, 1}, std::vector<float>(2, 1.0f));
  EXPECT_THAT(error(odd), HasSubstr("weight_scale': shape [2, 1] is neither one scale, nor one a "
                                    "row, nor one for 128 x 128 of [128, 64]"));
}

TEST_F(BlockFloatModules, StackedFp8ExpertsKeepTheirBlocks) {
  TestModel test;
  const std::string stack = test.prefix + "layers.2.mlp.experts.gate_up_proj";
  std::vector<uint8_t> codes(4 * 64 * 64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 127);
  test.tensors[stack] = tensor_of(DType::kF8E4M3, {4, 64, 64}, codes);
  test.tensors[stack + "_scale_inv"] =
      tensor_of<float>(DType::kF32, {4, 1, 1}, {1.0f, 2.0f, 4.0f, 8.0f});
  const auto model = load(test);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_EQ(model->placement.total().file_bytes, model->weights.checkpoint().data_bytes());
  const auto& moe = std::get<MoeSpec>(model->spec.layers[2].feed_forward);
  // Gate is the upper half of a block, up the lower one.
  const WeightMatrix& up = model->weights.expert(moe.up, 3);
  EXPECT_EQ(up.first_in_block, 32);
  std::vector<float> row(64);
  decode_row(up, 1, row.data());
  EXPECT_EQ(row[7], 8.0f * to_float(E4M3{codes[(3 * 64 + 33) * 64 + 7]}));
  test.tensors[stack + "_scale_inv"] =
      tensor_of<float>(DType::kF32, {1, 1, 1}, std::vector<float>(1, 1.0f));
  EXPECT_THAT(error(test), HasSubstr("shape [1, 1, 1], config.json needs [4, 1, 1]"));
}

TEST_F(BlockFloatModules, RefusesMissingAndMisshapenTensors) {
  for (const FloatSpelling spelling : kSpellings) {
    const BlockFloatTensors names = spelled(spelling, expert_);
    TestModel scales = model_of(spelling);
    scales.tensors.erase(names.scales);
    EXPECT_THAT(error(scales), HasSubstr("1 tensor is missing: " + names.scales));
    TestModel codes = model_of(spelling);
    codes.tensors[names.codes].shape[0] = 32;
    codes.tensors[names.codes].bytes.resize(codes.tensors[names.codes].bytes.size() / 2);
    EXPECT_THAT(error(codes), HasSubstr(names.codes + "': shape [32, "));
    TestModel lines = model_of(spelling);
    TestTensor& lines_tensor = lines.tensors[names.scales];
    lines_tensor.shape[0] *= 2;
    lines_tensor.bytes.resize(2 * lines_tensor.bytes.size(), std::byte{0x40});
    EXPECT_THAT(error(lines), HasSubstr(names.scales + "': shape ["));
    if (names.tensor_scale.empty()) continue;
    TestModel tensor = model_of(spelling);
    tensor.tensors.erase(names.tensor_scale);
    EXPECT_THAT(error(tensor), HasSubstr("1 tensor is missing: " + names.tensor_scale));
    tensor.tensors[names.tensor_scale] = tensor_of<float>(DType::kF32, {2}, {1.0f, 1.0f});
    EXPECT_THAT(error(tensor), HasSubstr(names.tensor_scale + "': must be one F32"));
  }
  TestModel type = model_of(FloatSpelling::kFp8);
  type.tensors[q_proj_ + ".weight_scale_inv"].dtype = DType::kI32;
  EXPECT_THAT(error(type), HasSubstr("element type I32, but scales of fp8 are F32 or BF16"));
  TestModel wide = model_of(FloatSpelling::kNvfp4Packed);
  wide.tensors[q_proj_ + ".weight_packed"].dtype = DType::kI8;
  EXPECT_THAT(error(wide), HasSubstr("q_proj.weight"));
  TestModel norm = model_of(FloatSpelling::kFp8);
  norm.tensors["model.language_model.norm.weight"] =
      tensor_of(DType::kF8E4M3, {64}, std::vector<uint8_t>(64));
  norm.tensors["model.language_model.norm.weight_scale_inv"] =
      tensor_of<float>(DType::kF32, {1}, {1.0f});
  EXPECT_THAT(error(norm), HasSubstr("only matrices may be quantised"));
}

TEST_F(BlockFloatModules, RefusesScalesThatAreNotPositiveNumbers) {
  struct Case {
    FloatSpelling spelling;
    size_t byte;
    std::vector<uint8_t> bytes;
    const char* what;
  };
  const Case cases[] = {
      {FloatSpelling::kFp8, 0, {0, 0, 0xC0, 0x7F}, "scale 0 is nan"},
      {FloatSpelling::kFp8, 0, {0, 0, 0x80, 0x7F}, "scale 0 is inf"},
      {FloatSpelling::kFp8, 0, {0, 0, 0, 0}, "scale 0 is 0"},
      {FloatSpelling::kFp8, 0, {0, 0, 0x80, 0xBF}, "scale 0 is -1"},
      {FloatSpelling::kNvfp4, 9, {0x7F}, "scale 9 is nan"},
      {FloatSpelling::kNvfp4, 9, {0xFF}, "scale 9 is"},
      {FloatSpelling::kNvfp4Packed, 9, {0}, "scale 9 is 0"},
      {FloatSpelling::kNvfp4Packed, 9, {0xB8}, "scale 9 is -1"},
      {FloatSpelling::kMxfp4Packed, 5, {0xFF}, "scale 5 is nan"},
  };
  for (const Case& bad : cases) {
    for (const std::string& module : {q_proj_, expert_}) {
      TestModel test = model_of(bad.spelling);
      const std::string name = spelled(bad.spelling, module).scales;
      std::memcpy(test.tensors[name].bytes.data() + bad.byte, bad.bytes.data(), bad.bytes.size());
      const std::string message = error(test);
      EXPECT_THAT(message, HasSubstr(name));
      EXPECT_THAT(message, HasSubstr(bad.what));
    }
  }
  for (const float value : {0.0f, -1.0f, INFINITY, NAN, 1e-45f}) {
    TestModel test = model_of(FloatSpelling::kNvfp4Packed);
    const std::string name = q_proj_ + ".weight_global_scale";
    test.tensors[name] = tensor_of<float>(DType::kF32, {1}, {value});
    EXPECT_THAT(error(test), HasSubstr(name + "': holds ")) << value;
  }
}

TEST_F(BlockFloatModules, RefusesAConfigurationThatContradictsTheTensors) {
  EXPECT_THAT(error_with_config(FloatSpelling::kNvfp4, R"({"quant_method":"fp8"})"),
              HasSubstr("holds nvfp4, config.json says fp8 (quantization_config)"));
  EXPECT_THAT(
      error_with_config(FloatSpelling::kFp8, R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"),
      HasSubstr("holds fp8, config.json says nvfp4"));
  EXPECT_THAT(
      error_with_config(FloatSpelling::kFp8,
                        R"({"quant_method":"fp8","modules_to_not_convert":[")" + q_proj_ + "\"]}"),
      HasSubstr("q_proj.weight': holds fp8, config.json lists " + q_proj_ + " as not quantised"));
  EXPECT_EQ(error_with_config(FloatSpelling::kFp8, "null"), "") << "the tensors say enough";
  TestModel plain;
  write_model(plain, directory_);
  std::string config = plain.config();
  config.insert(config.size() - 1, R"(,"quantization_config":{"quant_method":"fp8"})");
  directory_.write("config.json", config);
  EXPECT_THAT(load_model(context_.get(), directory_.path()).status().message(),
              HasSubstr("quantization_config.quant_method is \"fp8\", but no tensor holds fp8"));
}

}  // namespace
}  // namespace motley
