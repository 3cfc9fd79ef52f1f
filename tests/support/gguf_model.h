// A loaded model of the Qwen kind as GGUF, as llama.cpp's converter would write it: names, the
// order of value heads and what is folded into weights follow its conversion/qwen.py, not src/spec.
//
// Vectors, convolutions and routers are F32. A matrix whose rows are no whole blocks of the type
// becomes Q8_0, or F32.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "io/gguf_writer.h"
#include "io/loader.h"
#include "numeric/half.h"

namespace motley {

struct TestGgufOptions {
  std::optional<GgufType> type;  // of matrices; none: `plain`
  DType plain = DType::kF32;     // F32, F16 or BF16
  bool next = false;             // qwen3next: heads are not tiled, beta and alpha share a matrix
  bool fused_experts = false;    // gate and up in one stack
};

class TestGguf {
 public:
  TestGguf(const LoadedModel& model, TestGgufOptions options)
      : spec_(model.spec), weights_(model.weights), options_(options) {
    add("token_embd", matrix(spec_.embedding));
    add_norm("output_norm", spec_.final_norm);
    if (spec_.head != spec_.embedding) add("output", matrix(spec_.head));
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      add_layer("blk." + std::to_string(i) + ".", spec_.layers[i]);
    }
    if (!spec_.drafts.empty()) add_draft(spec_.drafts.front());
    set_keys();
  }

  // Tensors [first, first + count) as a file; count < 0: all that follow.
  void write(FaultPoints& faults, const std::string& path, const GgufMetadata& head,
             size_t first = 0, size_t count = SIZE_MAX) const {
    std::vector<GgufTensor> declared;
    for (size_t i = first; i < tensors.size() && i - first < count; ++i) {
      declared.push_back(tensors[i].first);
    }
    auto writer = GgufWriter::create(faults, path, head, declared);
    MOTLEY_CHECK(writer.is_ok(), writer.status().message());
    for (size_t i = 0; i < declared.size(); ++i) {
      // A test may have declared another shape.
      std::vector<std::byte> bytes = tensors[first + i].second;
      bytes.resize(static_cast<size_t>(declared[i].bytes()));
      const Status status = writer->write(i, 0, bytes);
      MOTLEY_CHECK(status.is_ok(), status.message());
    }
    const Status status = writer->finish();
    MOTLEY_CHECK(status.is_ok(), status.message());
  }
  void write(FaultPoints& faults, const std::string& path) const {
    write(faults, path, metadata());
  }

  GgufMetadata metadata() const {
    GgufMetadata sorted;
    for (const auto& [key, value] : keys) sorted.add(key, value);
    MOTLEY_CHECK(sorted.sort().is_ok(), "a key twice");
    return sorted;
  }

  // For tests to change.
  std::vector<std::pair<GgufTensor, std::vector<std::byte>>> tensors;
  std::vector<std::pair<std::string, GgufValue>> keys;

 private:
  struct Values {
    std::vector<int64_t> shape;
    std::vector<float> data;
  };

  static void append_rows(const WeightMatrix& weights, std::vector<float>* out) {
    for (int64_t row = 0; row < weights.rows; ++row) {
      out->resize(out->size() + static_cast<size_t>(weights.cols));
      decode_row(weights, row, out->data() + out->size() - weights.cols);
    }
  }
  Values matrix(TensorHandle handle) const {
    const WeightMatrix& weights = weights_.matrix(handle);
    Values values{{weights.rows, weights.cols}, {}};
    append_rows(weights, &values.data);
    return values;
  }
  Values experts(TensorHandle handle) const {
    const Shape& shape = spec_.tensor(handle).shape;
    Values values{{shape[0], shape[1], shape[2]}, {}};
    for (int expert = 0; expert < shape[0]; ++expert) {
      append_rows(weights_.expert(handle, expert), &values.data);
    }
    return values;
  }
  Values vector(TensorHandle handle) const {
    const ConstTensorView view = weights_.vector(handle);
    const int64_t size = spec_.tensor(handle).shape[0];
    return {{size}, {view.row<float>(0), view.row<float>(0) + size}};
  }

  // Value heads grouped by key head become heads in rounds over the key heads. `before` rows (or
  // columns) stay where they are.
  Values tiled(Values values, const GatedDeltaSpec& delta, int64_t before = 0) const {
    const int64_t per_key = delta.value_heads / delta.key_heads;
    if (options_.next || per_key == 1) return values;
    const int64_t row = static_cast<int64_t>(values.data.size()) / values.shape[0];
    const int64_t width = (values.shape[0] - before) / delta.value_heads * row;
    const std::vector<float> old = values.data;
    for (int64_t g = 0; g < delta.key_heads; ++g) {
      for (int64_t j = 0; j < per_key; ++j) {
        const int64_t from = before * row + (g * per_key + j) * width;
        const int64_t to = before * row + (j * delta.key_heads + g) * width;
        std::copy(old.begin() + from, old.begin() + from + width, values.data.begin() + to);
      }
    }
    return values;
  }
  static Values transposed(const Values& values) {
    Values result{{values.shape[1], values.shape[0]}, std::vector<float>(values.data.size())};
    for (int64_t i = 0; i < values.shape[0]; ++i) {
      for (int64_t j = 0; j < values.shape[1]; ++j) {
        result.data[static_cast<size_t>(j * values.shape[0] + i)] =
            values.data[static_cast<size_t>(i * values.shape[1] + j)];
      }
    }
    return result;
  }

  void add(std::string name, Values values, bool plain = false, bool bare = false) {
    GgufTensor tensor{.name = std::move(name) + (bare ? "" : ".weight"), .shape = values.shape};
    const int64_t cols = values.shape.back();
    if (!plain && values.shape.size() > 1) {
      tensor.dtype = options_.plain;
      for (const auto type : {options_.type, std::optional(GgufType::kQ8_0)}) {
        if (!options_.type || tensor.block || cols % gguf_facts(*type).values != 0) continue;
        tensor.block = type;
        tensor.dtype = DType::kU8;
      }
    }
    tensors.emplace_back(tensor, encoded(tensor, values.data));
  }
  static std::vector<std::byte> encoded(const GgufTensor& tensor, const std::vector<float>& data) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    auto* out = reinterpret_cast<uint8_t*>(bytes.data());
    if (tensor.block) {
      const GgufBlockFacts& facts = gguf_facts(*tensor.block);
      const auto size = static_cast<size_t>(facts.values);
      for (size_t i = 0; i < data.size() / size; ++i) {
        gguf_encode(*tensor.block, std::span(data).subspan(i * size, size),
                    out + static_cast<int64_t>(i) * facts.bytes);
      }
      return bytes;
    }
    for (const float value : data) {
      const uint16_t half = tensor.dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
      if (tensor.dtype == DType::kF32) {
        std::memcpy(out, &value, 4);
      } else {
        std::memcpy(out, &half, 2);
      }
      out += dtype_bytes(tensor.dtype);
    }
    return bytes;
  }

  void add_norm(const std::string& name, const NormSpec& norm) {
    Values values = vector(norm.weight);
    for (float& value : values.data) value += norm.weight_offset;
    add(name, std::move(values));
  }

  void add_layer(const std::string& blk, const LayerSpec& layer) {
    add_norm(blk + "attn_norm", layer.mixer_norm);
    if (const auto* delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) {
      add_delta(blk, *delta);
    } else {
      add_attention(blk, std::get<GatedAttentionSpec>(layer.mixer));
    }
    add_norm(blk + "post_attention_norm", layer.feed_forward_norm);
    add_moe(blk, std::get<MoeSpec>(layer.feed_forward));
  }

  void add_delta(const std::string& blk, const GatedDeltaSpec& delta) {
    const int64_t keys_before = int64_t{2} * delta.key_heads * delta.key_head_dim;
    add(blk + "attn_qkv", tiled(matrix(delta.in_proj_qkv), delta, keys_before));
    add(blk + "attn_gate", tiled(matrix(delta.in_proj_z), delta));
    if (options_.next) {
      add(blk + "ssm_ba", grouped_gates(delta));
    } else {
      add(blk + "ssm_beta", tiled(matrix(delta.in_proj_b), delta));
      add(blk + "ssm_alpha", tiled(matrix(delta.in_proj_a), delta));
    }
    const Shape& shape = spec_.tensor(delta.convolution).shape;
    const ConstTensorView view = weights_.convolution(delta.convolution);
    Values convolution{{shape[0], shape[1]},
                       {view.row<float>(0), view.row<float>(0) + shape.elements()}};
    add(blk + "ssm_conv1d", tiled(std::move(convolution), delta, keys_before), true);
    Values decay = vector(delta.a_log);
    for (float& value : decay.data) value = -std::exp(value);
    add(blk + "ssm_a", tiled(std::move(decay), delta), true, true);
    add(blk + "ssm_dt.bias", tiled(vector(delta.dt_bias), delta), true, true);
    add(blk + "ssm_norm", vector(delta.norm.weight));
    add(blk + "ssm_out", transposed(tiled(transposed(matrix(delta.out_proj)), delta)));
  }

  // Rows of a key head: beta of its value heads, then alpha.
  Values grouped_gates(const GatedDeltaSpec& delta) const {
    const Values b = matrix(delta.in_proj_b);
    const Values a = matrix(delta.in_proj_a);
    const int64_t size = b.shape[1] * (delta.value_heads / delta.key_heads);
    Values result{{int64_t{2} * delta.value_heads, b.shape[1]}, {}};
    for (int64_t g = 0; g < delta.key_heads; ++g) {
      for (const Values* from : {&b, &a}) {
        result.data.insert(result.data.end(), from->data.begin() + g * size,
                           from->data.begin() + (g + 1) * size);
      }
    }
    return result;
  }

  void add_attention(const std::string& blk, const GatedAttentionSpec& attention) {
    add(blk + "attn_q", matrix(attention.q_proj));
    add(blk + "attn_k", matrix(attention.k_proj));
    add(blk + "attn_v", matrix(attention.v_proj));
    add(blk + "attn_output", matrix(attention.o_proj));
    add_norm(blk + "attn_q_norm", attention.q_norm);
    add_norm(blk + "attn_k_norm", attention.k_norm);
  }

  void add_moe(const std::string& blk, const MoeSpec& moe) {
    add(blk + "ffn_gate_inp", matrix(moe.router), true);
    Values gate = experts(moe.gate);
    const Values up = experts(moe.up);
    if (options_.fused_experts) {
      const auto size = static_cast<std::ptrdiff_t>(gate.data.size()) / gate.shape[0];
      for (int64_t expert = gate.shape[0]; expert-- > 0;) {
        gate.data.insert(gate.data.begin() + (expert + 1) * size, up.data.begin() + expert * size,
                         up.data.begin() + (expert + 1) * size);
      }
      gate.shape[1] *= 2;
      add(blk + "ffn_gate_up_exps", std::move(gate));
    } else {
      add(blk + "ffn_gate_exps", std::move(gate));
      add(blk + "ffn_up_exps", up);
    }
    add(blk + "ffn_down_exps", experts(moe.down));
    add(blk + "ffn_gate_shexp", matrix(moe.shared_gate));
    add(blk + "ffn_up_shexp", matrix(moe.shared_up));
    add(blk + "ffn_down_shexp", matrix(moe.shared_down));
    Values gate_of_shared = matrix(moe.shared_expert_gate);
    gate_of_shared.shape = {gate_of_shared.shape[1]};
    add(blk + "ffn_gate_inp_shexp", std::move(gate_of_shared));
  }

  void add_draft(const DraftSpec& draft) {
    const std::string blk = "blk." + std::to_string(spec_.layers.size()) + ".";
    add_layer(blk, draft.layer);
    add(blk + "nextn.eh_proj", matrix(draft.projection));
    add_norm(blk + "nextn.enorm", draft.embedding_norm);
    add_norm(blk + "nextn.hnorm", draft.hidden_norm);
    add_norm(blk + "nextn.shared_head_norm", draft.final_norm);
  }

  void set_keys() {
    const std::string arch = options_.next ? "qwen3next" : "qwen35moe";
    const auto put = [&](const std::string& key, int64_t value) {
      keys.emplace_back(arch + "." + key, static_cast<uint64_t>(value));
    };
    keys.emplace_back("general.architecture", arch);
    put("block_count", std::ssize(spec_.layers) + std::ssize(spec_.drafts));
    if (!spec_.drafts.empty()) put("nextn_predict_layers", 1);
    put("context_length", spec_.context_length);
    put("embedding_length", spec_.hidden_size);
    keys.emplace_back(arch + ".attention.layer_norm_rms_epsilon",
                      static_cast<double>(spec_.final_norm.epsilon));
    std::vector<int64_t> recurrent;
    for (const LayerSpec& layer : spec_.layers) {
      recurrent.push_back(std::holds_alternative<GatedDeltaSpec>(layer.mixer));
    }
    keys.emplace_back(arch + ".attention.recurrent_layers", recurrent);
    for (const LayerSpec& layer : spec_.layers) set_layer_keys(arch, layer, put);
    const auto& moe = std::get<MoeSpec>(spec_.layers.front().feed_forward);
    put("expert_count", moe.experts);
    put("expert_used_count", moe.experts_per_token);
    put("expert_feed_forward_length", moe.intermediate_size);
    put("expert_shared_feed_forward_length", moe.shared_intermediate_size);
    if (!spec_.eos_tokens.empty()) {
      keys.emplace_back("tokenizer.ggml.eos_token_id",
                        static_cast<uint64_t>(spec_.eos_tokens.front()));
    }
  }

  template <typename Put>
  void set_layer_keys(const std::string& arch, const LayerSpec& layer, const Put& put) {
    if (const auto* delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) {
      if (std::exchange(has_delta_keys_, true)) return;
      put("ssm.conv_kernel", delta->conv_kernel);
      put("ssm.state_size", delta->key_head_dim);
      put("ssm.group_count", delta->key_heads);
      put("ssm.time_step_rank", delta->value_heads);
      put("ssm.inner_size", int64_t{delta->value_heads} * delta->value_head_dim);
      return;
    }
    if (std::exchange(has_attention_keys_, true)) return;
    const auto& attention = std::get<GatedAttentionSpec>(layer.mixer);
    put("attention.head_count", attention.heads);
    put("attention.head_count_kv", attention.kv_heads);
    put("attention.key_length", attention.head_dim);
    put("attention.value_length", attention.head_dim);
    put("rope.dimension_count", attention.rotary_dim);
    keys.emplace_back(arch + ".rope.freq_base", attention.rope_theta);
  }

  const ModelSpec& spec_;
  const LoadedWeights& weights_;
  const TestGgufOptions options_;
  bool has_delta_keys_ = false;
  bool has_attention_keys_ = false;
};

}  // namespace motley
