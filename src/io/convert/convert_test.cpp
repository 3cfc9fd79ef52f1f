#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "base/owned_context.h"
#include "io/convert/json_text.h"
#include "io/convert/quantize.h"
#include "io/convert/synth.h"
#include "io/loader.h"
#include "numeric/half.h"

namespace motley {
namespace {

using testing::HasSubstr;

const std::string kTiny = std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/tiny-qwen35";

class ConvertTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "convert_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Status quantize(const FormatRequest& request, const std::string& name) {
    return quantize_checkpoint(context_.get(), kTiny, request,
                               {.directory = directory_ + "/" + name});
  }
  LoadedModel load(const std::string& path) {
    Result<LoadedModel> model = load_model(context_.get(), path);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return std::move(model).value();
  }

  OwnedContext context_{{.threads = 2, .pin = false}};
  std::string directory_;
};

TensorHandle find(const ModelSpec& spec, const std::string& name) {
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    if (spec.tensors[i].name == name) return {static_cast<int32_t>(i)};
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST_F(ConvertTest, QuantisedWeightsAreNearAndNormsKeepTheirMeaning) {
  ASSERT_TRUE(quantize({.standard = {8, 64}, .experts = MlxAffineFormat{4, 32}}, "q").is_ok());
  const LoadedModel before = load(kTiny);
  const LoadedModel after = load(directory_ + "/q");
  ASSERT_EQ(before.spec.tensors.size(), after.spec.tensors.size());
  ASSERT_FALSE(after.spec.drafts.empty()) << "the draft layer is kept";
  EXPECT_EQ(after.spec.final_norm.weight_offset, 0.0f);

  const auto compare = [&](const WeightMatrix& a, const WeightMatrix& b, float tolerance) {
    std::vector<float> left(static_cast<size_t>(a.cols));
    std::vector<float> right(left.size());
    decode_row(a, 1, left.data());
    decode_row(b, 1, right.data());
    for (size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(left[i], right[i], tolerance);
  };
  const TensorHandle head = find(after.spec, "head");
  compare(before.weights.matrix(head), after.weights.matrix(head), 0.004f);
  EXPECT_EQ(after.weights.matrix(head).affine, (MlxAffineFormat{8, 64}));
  const TensorHandle up = find(after.spec, "layers.2.moe.experts.up");
  compare(before.weights.expert(up, 7), after.weights.expert(up, 7), 0.02f);
  EXPECT_EQ(after.weights.expert(up, 7).affine, (MlxAffineFormat{4, 32}));
  const TensorHandle router = find(after.spec, "layers.0.moe.router");
  EXPECT_EQ(after.weights.matrix(router).affine.bits, 8);
  const TensorHandle draft = find(after.spec, "drafts.0.layer.moe.experts.up");
  EXPECT_EQ(after.weights.expert(draft, 0).affine.bits, 8);

  // 1 + w as stored in the source equals what the MLX layout stores, up to its rounding.
  const TensorHandle norm = find(after.spec, "layers.0.mixer_norm");
  const float source = 1.0f + before.weights.vector(norm).as<float>()[5];
  EXPECT_EQ(after.weights.vector(norm).as<float>()[5], to_float(to_bf16(source)));
  const TensorHandle a_log = find(after.spec, "layers.0.delta.a_log");
  EXPECT_EQ(after.weights.vector(a_log).as<float>()[1],
            before.weights.vector(a_log).as<float>()[1]);
  const TensorHandle conv = find(after.spec, "layers.0.delta.convolution");
  EXPECT_EQ(after.weights.convolution(conv).row<float>(9)[3],
            before.weights.convolution(conv).row<float>(9)[3]);
}

// Relative to the largest magnitude of a block that a format rounds to.
double block_float_error(const WeightMatrix& before, const WeightMatrix& after) {
  std::vector<double> left(static_cast<size_t>(before.cols));
  std::vector<double> right(left.size());
  double error = 0;
  double square = 0;
  for (int64_t row = 0; row < before.rows; ++row) {
    decode_row(before, row, left.data());
    decode_row(after, row, right.data());
    for (size_t i = 0; i < left.size(); ++i) {
      error += (left[i] - right[i]) * (left[i] - right[i]);
      square += left[i] * left[i];
    }
  }
  return std::sqrt(error / square);
}

TEST_F(ConvertTest, BlockScaledFloatsAreNearAndKeepWhatIsSmall) {
  // Root of the relative square error of normal values, with a margin.
  const std::pair<const char*, double> formats[] = {
      {"fp8", 0.03}, {"nvfp4", 0.11}, {"nvfp4-packed", 0.11}, {"mxfp4", 0.14}};
  const LoadedModel before = load(kTiny);
  for (const auto& [format, most] : formats) {
    SCOPED_TRACE(format);
    const Status status = quantize(parse_format(format).value(), format);
    ASSERT_TRUE(status.is_ok()) << status.message();
    const LoadedModel after = load(directory_ + "/" + format);
    ASSERT_EQ(before.spec.tensors.size(), after.spec.tensors.size());
    for (const char* name : {"layers.2.moe.experts.up", "layers.0.moe.experts.down"}) {
      for (const int expert : {0, 15}) {
        const WeightMatrix& got = after.weights.expert(find(after.spec, name), expert);
        EXPECT_EQ(got.format, WeightFormat::kBlockFloat);
        const double error =
            block_float_error(before.weights.expert(find(before.spec, name), expert), got);
        EXPECT_LT(error, most) << name;
        EXPECT_GT(error, most / 4) << name;
      }
    }
    const auto format_of = [&](const char* name) {
      return after.weights.matrix(find(after.spec, name)).format;
    };
    for (const char* name : {"head", "embedding", "layers.0.moe.router",
                             "layers.0.moe.shared_expert_gate", "layers.0.delta.in_proj_a"}) {
      EXPECT_EQ(format_of(name), WeightFormat::kBf16) << name;
    }
    EXPECT_EQ(format_of("layers.3.attention.q_proj"), WeightFormat::kBlockFloat);
    EXPECT_EQ(format_of("drafts.0.layer.attention.q_proj"),
              std::string(format) == "fp8" ? WeightFormat::kBlockFloat : WeightFormat::kBf16);
    EXPECT_EQ(after.spec.final_norm.weight_offset, 1.0f);
    ASSERT_TRUE(after.quantization.claim);
    EXPECT_TRUE(after.quantization.claim->excluded.contains("lm_head"));
  }
}

// Both spellings of NVFP4 hold the same numbers; encoding them again changes nothing.
TEST_F(ConvertTest, SpellingsOfOneFormatAgree) {
  ASSERT_TRUE(quantize(parse_format("nvfp4").value(), "a").is_ok());
  ASSERT_TRUE(quantize_checkpoint(context_.get(), directory_ + "/a",
                                  parse_format("nvfp4-packed").value(),
                                  {.directory = directory_ + "/b"})
                  .is_ok());
  const LoadedModel first = load(directory_ + "/a");
  const LoadedModel second = load(directory_ + "/b");
  const TensorHandle up = find(first.spec, "layers.2.moe.experts.up");
  for (int expert = 0; expert < 16; ++expert) {
    EXPECT_LT(
        block_float_error(first.weights.expert(up, expert), second.weights.expert(up, expert)),
        1e-6);
  }
}

TEST_F(ConvertTest, DequantisingGivesBfloat16Back) {
  ASSERT_TRUE(quantize({.standard = {8, 64}}, "q").is_ok());
  const FormatRequest bf16{.layout = CheckpointLayout::kHuggingFace};
  ASSERT_TRUE(quantize_checkpoint(context_.get(), directory_ + "/q", bf16,
                                  {.directory = directory_ + "/back", .shard_bytes = 1 << 20})
                  .is_ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/back/model.safetensors.index.json"));
  const LoadedModel back = load(directory_ + "/back");
  EXPECT_EQ(back.weights.matrix(find(back.spec, "head")).format, WeightFormat::kBf16);
  EXPECT_EQ(back.spec.final_norm.weight_offset, 1.0f);
}

// mlx-lm loads model*.safetensors and adds 1 to every norm if a name there contains "mtp.".
TEST_F(ConvertTest, TheDraftLiesInAFileOfItsOwn) {
  ASSERT_TRUE(quantize({.standard = {4, 64}}, "q").is_ok());
  const LoadedModel model = load(directory_ + "/q");
  EXPECT_EQ(model.spec.drafts.size(), 1u);
  int drafts = 0;
  for (const CheckpointTensor& tensor : model.weights.checkpoint().tensors()) {
    const std::string& file = model.weights.checkpoint().shard(tensor).file().name();
    const bool is_draft = tensor.name.starts_with("mtp.");
    drafts += is_draft ? 1 : 0;
    EXPECT_TRUE(file.ends_with(is_draft ? "/mtp.safetensors" : "/model.safetensors")) << file;
  }
  EXPECT_GT(drafts, 10);
}

// Wherever it fails, the disk is as it was, and the next try into the same place works.
TEST_F(ConvertTest, AFailedExportLeavesNothing) {
  const std::string source = directory_ + "/source";
  std::filesystem::create_directories(source);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(kTiny + "/" + name, source + "/" + name);
  }
  std::ofstream(source + "/tokenizer.json") << "{}";
  const ExportOptions options{.directory = directory_ + "/new/deep", .shard_bytes = 1 << 20};
  for (const auto& [point, step] : {std::pair("io.publish", 1), std::pair("io.write", 97)}) {
    Status status;
    int64_t failures = 0;
    for (int64_t nth = 1;; nth += step) {
      context_.faults().arm(point, nth, io_error("no space left on device"));
      status = quantize_checkpoint(context_.get(), source, {}, options);
      context_.faults().clear();
      if (status.is_ok()) break;
      ++failures;
      ASSERT_THAT(status.message(), HasSubstr("no space left"));
      ASSERT_FALSE(std::filesystem::exists(directory_ + "/new")) << point << " " << nth;
    }
    EXPECT_GE(failures, 4) << "tokenizer, shards, index, configuration";
    EXPECT_TRUE(std::filesystem::exists(options.directory + "/tokenizer.json"));
    EXPECT_FALSE(std::filesystem::exists(options.directory + "/.motley-lock"));
    load(options.directory);
    std::filesystem::remove_all(directory_ + "/new");
  }
}

TEST_F(ConvertTest, ACompanionThatCannotBeReadFailsBeforeAnythingIsWritten) {
  const std::string source = directory_ + "/source";
  std::filesystem::create_directories(source);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(kTiny + "/" + name, source + "/" + name);
  }
  std::filesystem::create_symlink("/nowhere", source + "/tokenizer.json");
  const Status status =
      quantize_checkpoint(context_.get(), source, {}, {.directory = directory_ + "/q"});
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.json: is a symbolic link"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/q"));
}

TEST_F(ConvertTest, AStoppedExportLeavesNothing) {
  std::atomic<int> blocks{0};
  ExportOptions options{.directory = directory_ + "/q", .shard_bytes = 1 << 20};
  options.stop = [&] { return ++blocks > 40; };
  EXPECT_EQ(quantize_checkpoint(context_.get(), kTiny, {}, options).code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(directory_));
  SynthOptions synth{.config_path = kTiny + "/config.json", .output = options};
  EXPECT_EQ(synthesise_checkpoint(context_.get(), synth).code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

// One of the two begins while the other is at work.
TEST_F(ConvertTest, TwoIntoOneDirectoryDoNotBothSucceed) {
  Status second;
  ExportOptions options{.directory = directory_ + "/q"};
  std::once_flag once;
  options.stop = [&] {
    std::call_once(once, [&] {
      OwnedContext context({.threads = 1, .pin = false});
      second = quantize_checkpoint(context.get(), kTiny, {}, {.directory = directory_ + "/q"});
    });
    return false;
  };
  EXPECT_TRUE(quantize_checkpoint(context_.get(), kTiny, {}, options).is_ok());
  EXPECT_THAT(second.message(), HasSubstr("another motley is writing there"));
  load(directory_ + "/q");
}

TEST_F(ConvertTest, ExistingFilesAreNotTouched) {
  std::filesystem::create_directories(directory_ + "/q");
  std::ofstream(directory_ + "/q/precious") << "x";
  EXPECT_NE(quantize({}, "q").message().find("not empty"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/q/precious"));
}

TEST_F(ConvertTest, SynthMakesLoadableCheckpointsOfEveryFormat) {
  for (const char* format : {"bf16", "mlx4", "mlx8g32", "mlx3", "mlx6", "mlx2", "fp8", "nvfp4",
                             "nvfp4-packed", "mxfp4"}) {
    SynthOptions options{.config_path = kTiny + "/config.json",
                         .format = parse_format(format).value(),
                         .layers = 4,
                         .router_skew = 1,
                         .output = {.directory = directory_ + "/" + format}};
    const Status status = synthesise_checkpoint(context_.get(), options);
    ASSERT_TRUE(status.is_ok()) << status.message();
    const LoadedModel model = load(options.output.directory);
    EXPECT_EQ(model.spec.layers.size(), 4u);
    const WeightMatrix& head = model.weights.matrix(find(model.spec, "head"));
    std::vector<float> row(static_cast<size_t>(head.cols));
    double square = 0;
    for (int64_t i = 0; i < head.rows; ++i) {
      decode_row(head, i, row.data());
      for (const float value : row) square += double{value} * value;
    }
    // Variance 1 / in, so that logits have a deviation near one.
    EXPECT_NEAR(square / static_cast<double>(head.rows), 1.0, 0.15) << format;
    const WeightMatrix& q_proj =
        model.weights.matrix(find(model.spec, "layers.3.attention.q_proj"));
    square = 0;
    for (int64_t i = 0; i < q_proj.rows; ++i) {
      decode_row(q_proj, i, row.data());
      for (int64_t j = 0; j < q_proj.cols; ++j) {
        square += double{row[static_cast<size_t>(j)]} * row[static_cast<size_t>(j)];
      }
    }
    EXPECT_NEAR(square / static_cast<double>(q_proj.rows), 1.0, 0.25) << format;
  }
}

TEST_F(ConvertTest, SynthDependsOnTheSeedAlone) {
  const auto bytes_of = [&](const std::string& name, uint64_t seed, int threads) {
    OwnedContext context({.threads = threads, .pin = false});
    SynthOptions options{.config_path = kTiny + "/config.json",
                         .layers = 1,
                         .seed = seed,
                         .output = {.directory = directory_ + "/" + name}};
    EXPECT_TRUE(synthesise_checkpoint(context.get(), options).is_ok());
    std::ifstream file(options.output.directory + "/model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = bytes_of("a", 1, 1);
  EXPECT_TRUE(first == bytes_of("b", 1, 3));
  EXPECT_FALSE(first == bytes_of("c", 2, 1));
}

TEST(FormatRequest, NamesAreParsedOrRefused) {
  EXPECT_EQ(parse_format("bf16").value().layout, CheckpointLayout::kHuggingFace);
  EXPECT_EQ(parse_format("mlx4g32").value().standard, (MlxAffineFormat{4, 32}));
  EXPECT_EQ(parse_format("mxfp4").value().spelling, FloatSpelling::kMxfp4Packed);
  for (const char* bad : {"", "mlx", "mlx7", "mlx4g48", "mlx4x", "mlx4g", "q4_k", "mlx-4"}) {
    EXPECT_FALSE(parse_format(bad).is_ok()) << bad;
  }
}

TEST(JsonText, RoundTripsThroughTheParser) {
  const std::string text =
      R"({"a": [1, -2, 2.5, true, null], "b": {"c": "quo\"te é"}, "d": {}, "e": [], "f": 1e300})";
  const ConfigJson parsed = ConfigJson::parse(text, "x").value();
  const ConfigJson again = ConfigJson::parse(json_text(parsed.root().value()), "x").value();
  EXPECT_TRUE(parsed.root().value() == again.root().value());
}

}  // namespace
}  // namespace motley
