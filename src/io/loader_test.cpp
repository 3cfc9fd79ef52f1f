#include "io/loader.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "io/test_files.h"

namespace motley {
namespace {

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

}  // namespace
}  // namespace motley
