// The small checkpoint with layer 0 made a Kimi delta layer, and with residual streams.
#pragma once

#include "model/model_test_util.h"

namespace motley {

struct KimiShape {
  static constexpr int kHeads = 3, kKeyDim = 8, kValueDim = 6, kKernel = 4, kRank = 5;
  static constexpr int64_t kKeys = kHeads * kKeyDim, kValues = kHeads * kValueDim;
  static constexpr int kStreams = 4;
  static constexpr int64_t kCoefficients = kStreams * (2 + kStreams);
};

// Tensors as float32 under a module name of their own: "kimi.q_proj", "hyper.mixer.fn".
class ExtraTensors {
 public:
  explicit ExtraTensors(TestModel* model) : model_(model) {}

  void add(const std::string& name, std::vector<int64_t> shape, float scale) {
    TestTensor tensor{DType::kF32, std::move(shape), {}};
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = scale * test_value(name, i);
    }
    tensor.bytes.resize(values.size() * sizeof(float));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    model_->tensors[name] = std::move(tensor);
  }

 private:
  TestModel* model_;
};

inline TestModel kimi_model() {
  using S = KimiShape;
  TestModel model = mild_model();
  ExtraTensors extra(&model);
  constexpr int64_t kHidden = TestModel::kHidden;
  extra.add("kimi.q_proj.weight", {S::kKeys, kHidden}, 0.2f);
  extra.add("kimi.k_proj.weight", {S::kKeys, kHidden}, 0.2f);
  extra.add("kimi.v_proj.weight", {S::kValues, kHidden}, 0.2f);
  extra.add("kimi.q_conv.weight", {S::kKeys, 1, S::kKernel}, 0.5f);
  extra.add("kimi.k_conv.weight", {S::kKeys, 1, S::kKernel}, 0.5f);
  extra.add("kimi.v_conv.weight", {S::kValues, 1, S::kKernel}, 0.5f);
  extra.add("kimi.f_a.weight", {S::kRank, kHidden}, 0.2f);
  extra.add("kimi.f_b.weight", {S::kKeys, S::kRank}, 0.3f);
  extra.add("kimi.A_log", {1, 1, S::kHeads, 1}, 0.3f);
  extra.add("kimi.dt_bias", {S::kKeys}, 0.5f);
  extra.add("kimi.b_proj.weight", {S::kHeads, kHidden}, 0.1f);
  extra.add("kimi.g_a.weight", {S::kRank, kHidden}, 0.2f);
  extra.add("kimi.g_b.weight", {S::kValues, S::kRank}, 0.3f);
  extra.add("kimi.norm.weight", {S::kValueDim}, 1.0f);
  extra.add("kimi.out.weight", {kHidden, S::kValues}, 0.2f);
  for (int layer = 0; layer < TestModel::kLayers; ++layer) {
    for (const char* site : {"mixer", "feed_forward"}) {
      const std::string name = "hyper." + std::to_string(layer) + "." + site;
      extra.add(name + ".fn", {S::kCoefficients, S::kStreams * kHidden}, 0.1f);
      extra.add(name + ".base", {S::kCoefficients}, 0.5f);
      extra.add(name + ".scale", {3}, 0.5f);
    }
  }
  return model;
}

inline TensorHandle add_tensor(ModelSpec* spec, TensorRole role, Shape shape,
                               std::vector<TensorPiece> pieces) {
  spec->tensors.push_back({.name = pieces.front().module,
                           .role = role,
                           .shape = shape,
                           .pieces = std::move(pieces),
                           .part = "delta"});
  return {static_cast<int32_t>(spec->tensors.size()) - 1};
}

inline TensorHandle add_one(ModelSpec* spec, TensorRole role, Shape shape,
                            const std::string& module, bool bare = false) {
  return add_tensor(spec, role, shape, {{.module = module, .bare = bare, .row_count = shape[0]}});
}

// Layer 0 of `spec` becomes the Kimi delta layer of kimi_model().
inline void use_kimi_layer(ModelSpec* spec, bool bounded) {
  using S = KimiShape;
  const int64_t hidden = spec->hidden_size;
  const auto matrix = [&](const char* leaf, int64_t rows, int64_t cols) {
    return add_one(spec, TensorRole::kMatrix, {rows, cols}, std::string("kimi.") + leaf);
  };
  ChannelDeltaSpec kimi{.heads = S::kHeads,
                        .key_head_dim = S::kKeyDim,
                        .value_head_dim = S::kValueDim,
                        .conv_kernel = S::kKernel,
                        .bounded = bounded};
  kimi.q_proj = matrix("q_proj", S::kKeys, hidden);
  kimi.k_proj = matrix("k_proj", S::kKeys, hidden);
  kimi.v_proj = matrix("v_proj", S::kValues, hidden);
  kimi.convolution =
      add_tensor(spec, TensorRole::kConvolution, {2 * S::kKeys + S::kValues, S::kKernel},
                 {{.module = "kimi.q_conv", .row_count = S::kKeys},
                  {.module = "kimi.k_conv", .row_count = S::kKeys},
                  {.module = "kimi.v_conv", .row_count = S::kValues}});
  kimi.decay_in_proj = matrix("f_a", S::kRank, hidden);
  kimi.decay_proj = matrix("f_b", S::kKeys, S::kRank);
  kimi.a_log = add_one(spec, TensorRole::kVector, {S::kHeads}, "kimi.A_log", true);
  kimi.dt_bias = add_one(spec, TensorRole::kVector, {S::kKeys}, "kimi.dt_bias", true);
  kimi.beta_proj = matrix("b_proj", S::kHeads, hidden);
  kimi.gate_in_proj = matrix("g_a", S::kRank, hidden);
  kimi.gate_proj = matrix("g_b", S::kValues, S::kRank);
  kimi.norm = {.weight = add_one(spec, TensorRole::kVector, {S::kValueDim}, "kimi.norm"),
               .epsilon = 1e-5f};
  kimi.out_proj = matrix("out", hidden, S::kValues);
  spec->layers[0].mixer = kimi;
}

inline void use_streams(ModelSpec* spec) {
  using S = KimiShape;
  spec->residual = {.streams = S::kStreams, .sinkhorn_iterations = 5, .norm_epsilon = 1e-5f};
  for (size_t layer = 0; layer < spec->layers.size(); ++layer) {
    const auto site = [&](const char* name) {
      const std::string module = "hyper." + std::to_string(layer) + "." + name;
      const Shape fn = {S::kCoefficients, S::kStreams * spec->hidden_size};
      return HyperConnectionSpec{
          .fn = add_one(spec, TensorRole::kTable, fn, module + ".fn", true),
          .base = add_one(spec, TensorRole::kVector, {S::kCoefficients}, module + ".base", true),
          .scale = add_one(spec, TensorRole::kVector, {3}, module + ".scale", true)};
    };
    spec->layers[layer].residual = ResidualKind::kStreams;
    spec->layers[layer].mixer_hyper = site("mixer");
    spec->layers[layer].feed_forward_hyper = site("feed_forward");
  }
}

// Tensors of kimi_model() that a spec leaves out.
inline void skip_rest(ModelSpec* spec, bool kimi, bool streams) {
  if (!kimi) spec->skipped.push_back({"kimi.", "not of this test"});
  if (!streams) spec->skipped.push_back({"hyper.", "not of this test"});
}

}  // namespace motley
