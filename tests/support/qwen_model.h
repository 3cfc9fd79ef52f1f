// Small made-up checkpoints in the layouts of Qwen3.5-MoE and Qwen3-Next, as names and bytes.
//
// Values are a fixed function of tensor name and element, so a test can recompute any of them.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numeric/half.h"
#include "numeric/mlx_affine.h"
#include "spec/block_float_names.h"
#include "spec/tensor_catalog.h"

namespace motley {

struct TestModelOptions {
  bool next = false;      // qwen3_next instead of qwen3_5_moe
  bool mlx = false;       // MLX layout and names
  bool separate = false;  // experts one by one (Hugging Face only; always for Next)
  bool draft = true;
  bool tied = false;
  bool only_attention = false;                      // no layer of linear attention
  std::optional<MlxAffineFormat> quantized;         // MLX only: every matrix but the router
  std::optional<MlxAffineFormat> router_quantized;  // by a per-path override
  std::optional<FloatSpelling> spelling;            // separate experts: their matrices and q_proj
};

struct TestTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// Element `index` of tensor `name`: small, varied, exact in bfloat16.
inline float test_value(std::string_view name, int64_t index) {
  uint64_t state = static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15u;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return static_cast<float>(static_cast<int>(state >> 40 & 0xFF) - 128) / 64.0f;
}

class TestModel : public TensorCatalog {
 public:
  static constexpr int kHidden = 64, kVocab = 32, kHeads = 2, kKvHeads = 1, kHeadDim = 32;
  static constexpr int kKeyHeads = 2, kValueHeads = 4, kKeyDim = 8, kValueDim = 8, kKernel = 4;
  static constexpr int kExperts = 4, kExpertSize = 32, kSharedSize = 32, kLayers = 4;

  explicit TestModel(TestModelOptions model_options = {}) : options(model_options) {
    prefix = options.next  ? "model."
             : options.mlx ? "language_model.model."
                           : "model.language_model.";
    add_matrix(prefix + "embed_tokens", kVocab, kHidden);
    add_vector(prefix + "norm.weight", kHidden);
    if (!options.tied) {
      add_matrix(options.mlx && !options.next ? "language_model.lm_head" : "lm_head", kVocab,
                 kHidden);
    }
    for (int i = 0; i < kLayers; ++i) {
      add_layer(prefix + "layers." + std::to_string(i) + ".",
                options.only_attention || (i + 1) % 4 == 0);
    }
    if (options.draft) add_draft();
  }

  const CatalogEntry* find(std::string_view name) const override {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return nullptr;
    entry_ = {.dtype = found->second.dtype, .shape = found->second.shape};
    return &entry_;
  }

  // The text of config.json; `extra` members come last, e.g. ",\"attention_bias\":true".
  std::string config(const std::string& extra = "") const {
    const std::string fields =
        R"("hidden_size":64,"vocab_size":32,"num_hidden_layers":4,"num_attention_heads":2,)"
        R"("num_key_value_heads":1,"head_dim":32,"linear_num_key_heads":2,)"
        R"("linear_num_value_heads":4,"linear_key_head_dim":8,"linear_value_head_dim":8,)"
        R"("linear_conv_kernel_dim":4,"num_experts":4,"num_experts_per_tok":2,)"
        R"("moe_intermediate_size":32,"shared_expert_intermediate_size":32,)"
        R"("max_position_embeddings":128,"rope_theta":10000.0,"hidden_act":"silu",)"
        R"("eos_token_id":[3,5])";
    const std::string tied = std::string(options.tied ? R"(,"tie_word_embeddings":true)" : "") +
                             (options.only_attention ? R"(,"full_attention_interval":1)" : "");
    if (options.next) {
      return R"({"model_type":"qwen3_next",)" + fields + tied + quantization() + extra + "}";
    }
    return R"({"model_type":"qwen3_5_moe","text_config":{"model_type":"qwen3_5_moe_text",)" +
           fields + tied + extra + "}" + quantization() + "}";
  }

  void add_plain(const std::string& name, std::vector<int64_t> shape, DType dtype = DType::kBf16) {
    TestTensor tensor{.dtype = dtype, .shape = std::move(shape)};
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    for (int64_t i = 0; i < count; ++i) {
      const float value = test_value(name, i);
      if (dtype == DType::kF32) append(&tensor, value);
      if (dtype == DType::kBf16) append(&tensor, to_bf16(value));
    }
    tensors[name] = std::move(tensor);
  }

  TestModelOptions options;
  std::string prefix;
  std::map<std::string, TestTensor, std::less<>> tensors;

 private:
  template <typename T>
  static void append(TestTensor* tensor, T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    tensor->bytes.insert(tensor->bytes.end(), raw, raw + sizeof(T));
  }

  std::string claim() const {
    switch (*options.spelling) {
      case FloatSpelling::kFp8:
        return R"("quant_method":"fp8","weight_block_size":[128,128])";
      case FloatSpelling::kNvfp4:
        return R"("quant_method":"modelopt","quant_algo":"NVFP4")";
      case FloatSpelling::kNvfp4Packed:
        return R"("quant_method":"compressed-tensors","format":"nvfp4-pack-quantized")";
      case FloatSpelling::kMxfp4Packed:
        break;
    }
    return R"("quant_method":"compressed-tensors","format":"mxfp4-pack-quantized")";
  }

  std::string quantization() const {
    if (options.spelling) {
      return ",\"quantization_config\":{" + claim() + R"(,"ignore":["lm_head"]})";
    }
    if (!options.quantized) return "";
    const auto format = [](const MlxAffineFormat& f) {
      return "\"bits\":" + std::to_string(f.bits) +
             ",\"group_size\":" + std::to_string(f.group_size);
    };
    std::string text = ",\"quantization\":{" + format(*options.quantized) + ",\"mode\":\"affine\"";
    for (int i = 0; i < kLayers; ++i) {
      const std::string path = prefix + "layers." + std::to_string(i) + ".mlp.gate";
      text += ",\"" + path + "\":" +
              (options.router_quantized ? "{" + format(*options.router_quantized) + "}" : "false");
    }
    if (options.draft) text += ",\"mtp.layers.0.mlp.gate\":false";
    return text + "}";
  }

  void add_vector(const std::string& name, int64_t size, DType dtype = DType::kBf16) {
    add_plain(name, {size}, dtype);
  }

  void add_affine(const std::string& module, std::vector<int64_t> shape, MlxAffineFormat format) {
    const int64_t cols = shape.back();
    shape.back() = cols * format.bits / 32;
    TestTensor codes{.dtype = DType::kU32, .shape = shape};
    int64_t words = 1;
    for (const int64_t dim : shape) words *= dim;
    for (int64_t i = 0; i < words; ++i) {
      append(&codes,
             static_cast<uint32_t>(static_cast<uint64_t>(i + 7) * 0x9E3779B97F4A7C15u >> 32));
    }
    tensors[module + ".weight"] = std::move(codes);
    shape.back() = cols / format.group_size;
    add_plain(module + ".scales", shape);
    add_plain(module + ".biases", shape);
  }

  // Codes count up, scales are powers of two, the scale of the tensor is 1/4.
  void add_block_floats(const std::string& module, int64_t rows, int64_t cols) {
    const BlockFloatTensors names = spelled(*options.spelling, module);
    const BlockFloatFormat format = block_float_format(names.kind);
    const bool fp8 = names.kind == FloatKind::kFp8;
    TestTensor codes{fp8 ? DType::kF8E4M3 : DType::kU8, {rows, format.row_bytes(cols)}, {}};
    for (int64_t i = 0; i < rows * format.row_bytes(cols); ++i) {
      append(&codes, static_cast<uint8_t>(i % 127));
    }
    tensors[names.codes] = std::move(codes);
    TestTensor scales{
        fp8 ? DType::kF32 : DType::kU8, {format.block_lines(rows), format.blocks(cols)}, {}};
    if (names.kind == FloatKind::kNvfp4) scales.dtype = DType::kF8E4M3;
    for (int64_t i = 0; i < scales.shape[0] * scales.shape[1]; ++i) {
      const float scale = i % 2 == 0 ? 0.5f : 2.0f;
      if (fp8) append(&scales, scale);
      if (names.kind == FloatKind::kNvfp4) append(&scales, to_e4m3(scale));
      if (names.kind == FloatKind::kMxfp4) append(&scales, to_e8m0_up(scale));
    }
    tensors[names.scales] = std::move(scales);
    if (names.tensor_scale.empty()) return;
    TestTensor scale{DType::kF32, {}, {}};
    append(&scale, names.is_reciprocal ? 4.0f : 0.25f);
    tensors[names.tensor_scale] = std::move(scale);
  }

  void add_matrix(const std::string& module, int64_t rows, int64_t cols, int64_t experts = 0) {
    const bool expert = module.find(".experts.") != module.npos;
    if (options.spelling && (expert || module.ends_with("q_proj"))) {
      return add_block_floats(module, rows, cols);
    }
    std::vector<int64_t> shape{rows, cols};
    if (experts > 0) shape.insert(shape.begin(), experts);
    const bool router = module.ends_with("mlp.gate");
    auto format = router ? options.router_quantized : options.quantized;
    if (module == "mtp.layers.0.mlp.gate") format.reset();
    if (format) return add_affine(module, shape, *format);
    add_plain(module + ".weight", shape);
  }

  void add_delta(const std::string& p) {
    const int64_t kd = kKeyHeads * kKeyDim;
    const int64_t vd = kValueHeads * kValueDim;
    if (options.next) {
      add_matrix(p + "in_proj_qkvz", 2 * kd + 2 * vd, kHidden);
      add_matrix(p + "in_proj_ba", 2 * kValueHeads, kHidden);
    } else {
      add_matrix(p + "in_proj_qkv", 2 * kd + vd, kHidden);
      add_matrix(p + "in_proj_z", vd, kHidden);
      add_matrix(p + "in_proj_b", kValueHeads, kHidden);
      add_matrix(p + "in_proj_a", kValueHeads, kHidden);
    }
    const std::vector<int64_t> hf{2 * kd + vd, 1, kKernel};
    const std::vector<int64_t> mlx{2 * kd + vd, kKernel, 1};
    add_plain(p + "conv1d.weight", options.mlx ? mlx : hf);
    add_vector(p + "A_log", kValueHeads, DType::kF32);
    add_vector(p + "dt_bias", kValueHeads);
    add_vector(p + "norm.weight", kValueDim);
    add_matrix(p + "out_proj", kHidden, vd);
  }

  void add_attention(const std::string& p) {
    add_matrix(p + "q_proj", kHeads * 2 * kHeadDim, kHidden);
    add_matrix(p + "k_proj", kKvHeads * kHeadDim, kHidden);
    add_matrix(p + "v_proj", kKvHeads * kHeadDim, kHidden);
    add_matrix(p + "o_proj", kHidden, kHeads * kHeadDim);
    add_vector(p + "q_norm.weight", kHeadDim);
    add_vector(p + "k_norm.weight", kHeadDim);
  }

  void add_moe(const std::string& p) {
    add_matrix(p + "gate", kExperts, kHidden);
    add_matrix(p + "shared_expert_gate", 1, kHidden);
    add_matrix(p + "shared_expert.gate_proj", kSharedSize, kHidden);
    add_matrix(p + "shared_expert.up_proj", kSharedSize, kHidden);
    add_matrix(p + "shared_expert.down_proj", kHidden, kSharedSize);
    if (options.mlx) {
      add_matrix(p + "switch_mlp.gate_proj", kExpertSize, kHidden, kExperts);
      add_matrix(p + "switch_mlp.up_proj", kExpertSize, kHidden, kExperts);
      add_matrix(p + "switch_mlp.down_proj", kHidden, kExpertSize, kExperts);
    } else if (options.separate || options.next) {
      for (int e = 0; e < kExperts; ++e) {
        const std::string q = p + "experts." + std::to_string(e) + ".";
        add_matrix(q + "gate_proj", kExpertSize, kHidden);
        add_matrix(q + "up_proj", kExpertSize, kHidden);
        add_matrix(q + "down_proj", kHidden, kExpertSize);
      }
    } else {
      add_plain(p + "experts.gate_up_proj", {kExperts, 2 * kExpertSize, kHidden});
      add_plain(p + "experts.down_proj", {kExperts, kHidden, kExpertSize});
    }
  }

  void add_layer(const std::string& p, bool full_attention) {
    add_vector(p + "input_layernorm.weight", kHidden);
    add_vector(p + "post_attention_layernorm.weight", kHidden);
    if (full_attention) {
      add_attention(p + "self_attn.");
    } else {
      add_delta(p + "linear_attn.");
    }
    add_moe(p + "mlp.");
  }

  void add_draft() {
    add_matrix("mtp.fc", kHidden, 2 * kHidden);
    add_vector("mtp.pre_fc_norm_embedding.weight", kHidden);
    add_vector("mtp.pre_fc_norm_hidden.weight", kHidden);
    add_vector("mtp.norm.weight", kHidden);
    add_layer("mtp.layers.0.", true);
  }

  mutable CatalogEntry entry_;
};

}  // namespace motley
