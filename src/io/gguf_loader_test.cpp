// GGUF files of a made-up model hold the weights of the checkpoint that they were made from.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "base/owned_context.h"
#include "io/loader.h"
#include "support/gguf_model.h"
#include "support/model_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

class GgufLoader : public ::testing::Test {
 protected:
  // The checkpoint in the Hugging Face layout.
  LoadedModel original(TestModelOptions options = {}) {
    write_model(TestModel(options), source_);
    Result<LoadedModel> model = load_model(context_.get(), source_.path());
    MOTLEY_CHECK(model.is_ok(), model.status().message());
    return std::move(model).value();
  }
  Result<LoadedModel> load(std::string_view name = "model.gguf") {
    return load_model(context_.get(), directory_ / name);
  }
  // Of the file after `change`.
  template <typename Change>
  std::string error(const Change& change, TestGgufOptions options = {}) {
    const LoadedModel model = original();
    TestGguf gguf(model, options);
    change(&gguf);
    gguf.write(context_.faults(), directory_ / "model.gguf");
    const Result<LoadedModel> loaded = load();
    const std::string message = loaded.is_ok() ? "accepted" : loaded.status().message();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

  OwnedContext context_{test_threads()};
  TemporaryDirectory source_;
  TemporaryDirectory directory_;
};

std::vector<float> rows_of(const WeightMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    decode_row(matrix, row, values.data() + row * matrix.cols);
  }
  return values;
}

std::vector<float> values_of(const LoadedModel& model, size_t index) {
  const TensorSpec& tensor = model.spec.tensors[index];
  const TensorHandle handle{static_cast<int32_t>(index)};
  const auto floats = [&](const ConstTensorView& view) {
    const float* data = view.row<float>(0);
    return std::vector<float>(data, data + tensor.shape.elements());
  };
  switch (tensor.role) {
    case TensorRole::kMatrix:
      return rows_of(model.weights.matrix(handle));
    case TensorRole::kVector:
      return floats(model.weights.vector(handle));
    case TensorRole::kTable:
      return floats(model.weights.table(handle));
    case TensorRole::kConvolution:
      return floats(model.weights.convolution(handle));
    case TensorRole::kExperts:
      break;
  }
  std::vector<float> values;
  for (int expert = 0; expert < tensor.shape[0]; ++expert) {
    const std::vector<float> one = rows_of(model.weights.expert(handle, expert));
    values.insert(values.end(), one.begin(), one.end());
  }
  return values;
}

// Weights of zero-centred norms, which GGUF files hold with 1 added.
bool is_zero_centred(const std::string& name) {
  return name.find("norm") != std::string::npos && !name.ends_with("delta.norm");
}

// Every tensor of both, within `tolerance` of the largest value of its kind.
void expect_same_weights(const LoadedModel& a, const LoadedModel& b, float tolerance = 0) {
  ASSERT_EQ(a.spec.tensors.size(), b.spec.tensors.size());
  for (size_t i = 0; i < a.spec.tensors.size(); ++i) {
    const std::string& name = a.spec.tensors[i].name;
    ASSERT_EQ(name, b.spec.tensors[i].name);
    ASSERT_EQ(a.spec.tensors[i].shape, b.spec.tensors[i].shape) << name;
    const std::vector<float> wanted = values_of(a, i);
    const std::vector<float> found = values_of(b, i);
    ASSERT_EQ(wanted.size(), found.size());
    const float offset = is_zero_centred(name) ? 1.0f : 0.0f;
    const float allowed = name.ends_with("a_log") ? 1e-5f : tolerance;
    for (size_t j = 0; j < wanted.size(); ++j) {
      ASSERT_NEAR(found[j], wanted[j] + offset, allowed) << name << " " << j;
    }
  }
}

TEST_F(GgufLoader, WeightsAreThoseOfTheCheckpoint) {
  for (const DType plain : {DType::kF32, DType::kBf16}) {
    const LoadedModel model = original();
    TestGguf(model, {.plain = plain}).write(context_.faults(), directory_ / "model.gguf");
    const auto loaded = load();
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
    expect_same_weights(model, *loaded);
    EXPECT_EQ(loaded->spec.family, "qwen3_5_moe");
    EXPECT_EQ(loaded->spec.final_norm.weight_offset, 0.0f);
    EXPECT_EQ(loaded->spec.drafts.size(), 1u);
    EXPECT_EQ(loaded->spec.eos_tokens, std::vector<int32_t>{3});
    EXPECT_EQ(loaded->placement.total().file_bytes, loaded->weights.checkpoint().data_bytes());
  }
}

TEST_F(GgufLoader, AFileInAFolderAndInShards) {
  const LoadedModel model = original();
  const TestGguf gguf(model, {});
  gguf.write(context_.faults(), directory_ / "one.gguf");
  directory_.write("mmproj-one.gguf", "not a model");
  const auto alone = load("");
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  std::filesystem::remove(directory_ / "one.gguf");

  constexpr size_t kShards = 3;
  const size_t each = gguf.tensors.size() / kShards + 1;
  for (size_t i = 0; i < kShards; ++i) {
    GgufMetadata keys;
    if (i == 0) keys = gguf.metadata();
    keys.add("split.no", static_cast<uint64_t>(i));
    keys.add("split.count", uint64_t{kShards});
    keys.add("split.tensors.count", static_cast<uint64_t>(gguf.tensors.size()));
    gguf.write(context_.faults(),
               directory_ / ("two-0000" + std::to_string(i + 1) + "-of-00003.gguf"), keys, i * each,
               each);
  }
  for (const char* name : {"", "two-00001-of-00003.gguf", "two-00003-of-00003.gguf"}) {
    const auto loaded = load(name);
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
    EXPECT_EQ(loaded->weights.checkpoint().shard_count(), kShards);
    expect_same_weights(model, *loaded);
  }
  std::filesystem::remove(directory_ / "two-00002-of-00003.gguf");
  EXPECT_THAT(load("").status().message(), HasSubstr("two-00002-of-00003.gguf: no such file"));
}

TEST_F(GgufLoader, FusedExpertsAndTiedHead) {
  const LoadedModel model = original({.tied = true});
  TestGguf(model, {.fused_experts = true}).write(context_.faults(), directory_ / "model.gguf");
  const auto loaded = load();
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ(loaded->spec.head, loaded->spec.embedding);
  expect_same_weights(model, *loaded);
}

TEST_F(GgufLoader, Qwen3NextHasItsHeadsInPlace) {
  const LoadedModel model = original({.next = true, .draft = false});
  TestGguf(model, {.next = true}).write(context_.faults(), directory_ / "model.gguf");
  const auto loaded = load();
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ(loaded->spec.family, "qwen3_next");
  expect_same_weights(model, *loaded);
}

// The largest test value is 2, so a step is at most 2 / 127 of Q8_0 and 2 / 7 of Q4_0.
TEST_F(GgufLoader, QuantisedWeightsAreNear) {
  for (const auto& [type, step] : {std::pair(GgufType::kQ8_0, 0.009f), {GgufType::kQ4_0, 0.3f}}) {
    const LoadedModel model = original();
    TestGguf(model, {.type = type}).write(context_.faults(), directory_ / "model.gguf");
    const auto loaded = load();
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
    expect_same_weights(model, *loaded, step);
    bool streams = false;
    for (const PlacementRow& row : loaded->placement.rows) {
      streams |= row.part == "experts" && row.format == (step < 0.01f ? "q8_0" : "q4_0");
    }
    EXPECT_TRUE(streams);
  }
}

TEST_F(GgufLoader, WhatIsMissingOrStraysIsNamed) {
  EXPECT_THAT(error([&](TestGguf* gguf) {
                std::erase_if(gguf->tensors, [](const auto& tensor) {
                  return tensor.first.name == "blk.1.ffn_up_exps.weight";
                });
              }),
              HasSubstr("missing: blk.1.ffn_up_exps.weight"));
  EXPECT_THAT(error([&](TestGguf* gguf) {
                gguf->tensors.push_back(gguf->tensors.back());
                gguf->tensors.back().first.name = "blk.0.stray.weight";
              }),
              HasSubstr("not part of this model: blk.0.stray.weight"));
  EXPECT_THAT(error([](TestGguf* gguf) { gguf->tensors[1].first.shape = {63}; }),
              HasSubstr("tensor 'output_norm.weight': shape [63]"));
}

TEST_F(GgufLoader, KeysAreChecked) {
  const auto with_key = [&](const std::string& key, std::optional<GgufValue> value) {
    return error([&](TestGguf* gguf) {
      std::erase_if(gguf->keys, [&](const auto& entry) { return entry.first == key; });
      if (value) gguf->keys.emplace_back(key, *value);
    });
  };
  EXPECT_THAT(with_key("general.architecture", std::string("llama")),
              HasSubstr("general.architecture \"llama\" is not supported; known are qwen35moe"));
  EXPECT_THAT(with_key("general.architecture", std::nullopt),
              HasSubstr("model.gguf: key 'general.architecture' is missing"));
  EXPECT_THAT(with_key("qwen35moe.ssm.group_count", std::nullopt),
              HasSubstr("key 'qwen35moe.ssm.group_count' is missing"));
  EXPECT_THAT(with_key("qwen35moe.ssm.group_count", uint64_t{3}), HasSubstr("do not fit 3 key"));
  EXPECT_THAT(with_key("qwen35moe.expert_count", uint64_t{8}), HasSubstr("shape ["));
  EXPECT_THAT(with_key("qwen35moe.block_count", uint64_t{1} << 40), HasSubstr("out of range"));
  EXPECT_THAT(with_key("qwen35moe.attention.value_length", uint64_t{64}), HasSubstr("differ"));
  EXPECT_THAT(with_key("qwen35moe.rope.scaling.type", std::string("yarn")),
              HasSubstr("\"yarn\" is not supported"));
  EXPECT_THAT(with_key("qwen35moe.nextn_predict_layers", uint64_t{2}),
              HasSubstr("more than one is not supported"));
  EXPECT_THAT(with_key("tokenizer.ggml.eos_token_id", uint64_t{32}), HasSubstr("out of range"));
  EXPECT_THAT(with_key("split.count", uint64_t{2}), HasSubstr("'split.count': 2"));
  EXPECT_THAT(with_key("split.tensors.count", uint64_t{2}), HasSubstr("'split.tensors.count': 2"));
  EXPECT_THAT(with_key("qwen35moe.attention.head_count_kv", std::vector<int64_t>{0, 1, 0, 2, 1}),
              HasSubstr("layers differ"));
  EXPECT_EQ(with_key("qwen35moe.attention.head_count_kv", std::vector<int64_t>{0, 0, 0, 1, 1}),
            "accepted");
}

TEST_F(GgufLoader, ValuesThatBreakTheModelAreRefused) {
  const auto find = [](TestGguf* gguf, std::string_view name) {
    for (auto& tensor : gguf->tensors) {
      if (tensor.first.name == name) return &tensor;
    }
    MOTLEY_CHECK(false, "no such tensor");
  };
  EXPECT_THAT(error([&](TestGguf* gguf) {
                const float positive = 0.5f;
                std::memcpy(find(gguf, "blk.1.ssm_a")->second.data(), &positive, 4);
              }),
              HasSubstr("tensor 'blk.1.ssm_a': holds 0.5, which is no -exp(A_log)"));
  for (const char* name : {"blk.0.ffn_down_exps.weight", "blk.3.attn_k.weight"}) {
    EXPECT_THAT(error(
                    [&](TestGguf* gguf) {
                      std::vector<std::byte>& bytes = find(gguf, name)->second;
                      bytes[bytes.size() - 33] = std::byte{0x7E};  // of the last block's d
                    },
                    {.type = GgufType::kQ8_0}),
                HasSubstr(std::string(name) + "' has a block whose scale is NaN"));
  }
  EXPECT_THAT(error([&](TestGguf* gguf) {
                auto& [tensor, bytes] = *find(gguf, "output_norm.weight");
                tensor.block = GgufType::kQ8_0;
                tensor.dtype = DType::kU8;
                bytes.resize(static_cast<size_t>(tensor.bytes()));
              }),
              HasSubstr("output_norm.weight': only matrices may be quantised"));
}

TEST_F(GgufLoader, AFolderMustSayWhichModel) {
  const LoadedModel model = original();
  const TestGguf gguf(model, {});
  gguf.write(context_.faults(), directory_ / "a.gguf");
  gguf.write(context_.faults(), directory_ / "b.gguf");
  EXPECT_THAT(load("").status().message(), HasSubstr("several GGUF models, name one: a.gguf, b"));
  EXPECT_TRUE(load("b.gguf").is_ok());
  EXPECT_THAT(load("c.gguf").status().message(), HasSubstr("c.gguf: no such file"));
  EXPECT_TRUE(check_model_family(context_.get(), directory_ / "a.gguf").is_ok());
  std::filesystem::remove(directory_ / "b.gguf");
  std::filesystem::create_symlink(directory_ / "a.gguf", directory_ / "link.gguf");
  EXPECT_THAT(load("link.gguf").status().message(), HasSubstr("symbolic link"));
}

}  // namespace
}  // namespace motley
