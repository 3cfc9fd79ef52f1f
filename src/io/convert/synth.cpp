#include "io/convert/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/hash.h"
#include "io/convert/json_text.h"
#include "io/convert/packed_rows.h"
#include "io/convert/random_rows.h"
#include "io/file.h"
#include "spec/family_registry.h"

namespace motley {
namespace {

// Token ids in one cluster share most of their embedding.
constexpr int64_t kClusterTokens = 64;
constexpr float kClusterShare = 0.8f;  // of the embedding's deviation
// Mean of every embedding entry relative to its deviation: the direction that carries popularity.
constexpr float kCommonMean = 1.0f;
// The K largest of log popularities with Gumbel noise follow Zipf's law. A token's logits have
// normal noise, of deviation 0.7 beside the mean; popularities times this give nearly the same
// shares (simulated for 32 to 512 experts: the most popular get theirs within 5 % of all uses).
constexpr double kNormalForGumbel = 0.35;
// Deviation of uniform codes: of E2M1, and of E4M3 with 0x7E for NaN.
constexpr float kE2M1Deviation = 2.9261749f;
constexpr float kE4M3Deviation = 107.24427f;

class RandomSource final : public ModuleSource {
 public:
  RandomSource(const ModelSpec& spec, const SynthOptions& options)
      : spec_(spec), options_(options), layers_(std::max<size_t>(spec.layers.size(), 1)) {}

  void fill(const ModulePlan& plan, int64_t expert, int64_t first, int64_t count,
            const PackedRows& out) const override {
    const TensorSpec& tensor = spec_.tensor(plan.sources.front().tensor);
    const uint64_t stream = hash_bytes(plan.module);
    if (plan.spelling) return fill_blocks(plan, deviation(tensor, plan), first, count, out);
    std::vector<float> values(static_cast<size_t>(plan.cols));
    std::vector<uint8_t> codes(values.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = first + i;
      PositionedRandom random(options_.seed, stream,
                              static_cast<uint64_t>(expert * plan.rows + row));
      if (plan.format && !has_structure(tensor)) {
        fill_codes(plan, deviation(tensor, plan), i, &random, out);
        continue;
      }
      fill_values(tensor, plan, row, &random, &values);
      if (plan.format) {
        quantize_row(plan, values, &codes, i, out);
        continue;
      }
      for (int64_t col = 0; col < plan.cols; ++col) {
        store_value(values[static_cast<size_t>(col)], plan.dtype, out.values, i * plan.cols + col);
      }
    }
  }

  // A power of two, so that both spellings of a scale say the same.
  float tensor_scale(const ModulePlan& plan) const override {
    const TensorSpec& tensor = spec_.tensor(plan.sources.front().tensor);
    const float scale = power_of_two_below(deviation(tensor, plan) / kE2M1Deviation);
    return spelled(*plan.spelling, plan.module).is_reciprocal ? 1.0f / scale : scale;
  }

 private:
  static float power_of_two_below(float value) { return std::exp2(std::floor(std::log2(value))); }

  // Uniform codes, as fill_codes(); blocks of scales begin with the rows.
  void fill_blocks(const ModulePlan& plan, float deviation, int64_t first, int64_t count,
                   const PackedRows& out) const {
    const uint64_t stream = hash_bytes(plan.module);
    const bool fp8 = plan.block.element == BlockFloatFormat::Element::kE4M3;
    const int64_t bytes = plan.value_row_bytes();
    const auto row_of = [&](int64_t row) {
      return static_cast<uint64_t>(plan.first_expert * plan.rows + row);
    };
    for (int64_t i = 0; i < count; ++i) {
      PositionedRandom random(options_.seed, stream, row_of(first + i));
      std::byte* row = out.values + i * bytes;
      random.fill_bytes({row, static_cast<size_t>(bytes)});
      for (int64_t at = 0; fp8 && at < bytes; ++at) {
        if ((row[at] & std::byte{0x7F}) == std::byte{0x7F}) row[at] ^= std::byte{1};  // no NaN
      }
    }
    const int64_t blocks = plan.block.blocks(plan.cols);
    for (int64_t line = 0; line < plan.scale_lines(count); ++line) {
      PositionedRandom random(options_.seed, stream ^ 3,
                              row_of(first + line * plan.block.block_rows));
      for (int64_t i = line * blocks; i < (line + 1) * blocks; ++i) {
        store_block_scale(plan.block, deviation, i, &random, out.scales);
      }
    }
  }

  static void store_block_scale(const BlockFloatFormat& block, float deviation, int64_t index,
                                PositionedRandom* random, std::byte* scales) {
    const float own = deviation * (1.0f + 0.1f * random->normal());
    if (block.scale == BlockFloatFormat::Scale::kF32) {
      const float scale = own / kE4M3Deviation;
      std::memcpy(scales + 4 * index, &scale, sizeof(scale));
      return;
    }
    const float scale = own / kE2M1Deviation;
    if (block.scale == BlockFloatFormat::Scale::kE4M3) {
      const float tensor_scale = power_of_two_below(deviation / kE2M1Deviation);
      scales[index] = static_cast<std::byte>(to_e4m3(scale / tensor_scale).bits);
      return;
    }
    // One of the two powers of two around it, so often that squares have the wanted mean.
    const float below = power_of_two_below(scale);
    const float excess = (scale / below) * (scale / below);
    const bool above = random->uniform() * 3 < double{excess} - 1;
    scales[index] = static_cast<std::byte>(to_e8m0_up(above ? 2 * below : below).bits);
  }

  // Rows whose values matter beyond their size: they are drawn as numbers, not as codes.
  bool has_structure(const TensorSpec& tensor) const {
    return options_.router_skew > 0 && (tensor.part == "router" || tensor.part == "embedding");
  }

  float deviation(const TensorSpec& tensor, const ModulePlan& plan) const {
    if (tensor.part == "embedding") return 1.0f;
    if (tensor.role == TensorRole::kConvolution) return 0.5f;
    const float by_width = 1.0f / std::sqrt(static_cast<float>(plan.cols));
    const bool writes_residual = tensor.name.ends_with("out_proj") ||
                                 tensor.name.ends_with("o_proj") || tensor.name.ends_with("down");
    return writes_residual ? by_width / std::sqrt(2.0f * static_cast<float>(layers_)) : by_width;
  }

  void fill_values(const TensorSpec& tensor, const ModulePlan& plan, int64_t row,
                   PositionedRandom* random, std::vector<float>* values) const {
    if (tensor.role == TensorRole::kVector) {
      values->front() = vector_value(tensor, plan, random);
      return;
    }
    const float scale = deviation(tensor, plan);
    for (float& value : *values) value = scale * random->normal();
    if (!has_structure(tensor)) return;
    if (tensor.part == "embedding") {
      PositionedRandom cluster(options_.seed, 1, static_cast<uint64_t>(row / kClusterTokens));
      const float own = std::sqrt(1 - kClusterShare * kClusterShare);
      for (float& value : *values) {
        value = own * value + kClusterShare * cluster.normal() + kCommonMean;
      }
    } else if (plan.rows > 1) {
      // A router row: its part along the common direction is the expert's log popularity, and
      // nothing else.
      const double rank = static_cast<double>(popularity_rank(plan, row)) + 1;
      const auto bias =
          static_cast<float>(-options_.router_skew * kNormalForGumbel * std::log(rank));
      const float mean = std::accumulate(values->begin(), values->end(), 0.0f) /
                         static_cast<float>(values->size());
      for (float& value : *values) value -= mean;
      const float common =
          bias * std::sqrt(1 + 1 / (kCommonMean * kCommonMean)) / static_cast<float>(plan.cols);
      for (float& value : *values) value += common;
    }
  }

  // Another order of experts in every layer.
  int64_t popularity_rank(const ModulePlan& plan, int64_t expert) const {
    std::vector<std::pair<uint64_t, int64_t>> order;
    for (int64_t i = 0; i < plan.rows; ++i) {
      PositionedRandom random(options_.seed, hash_bytes(plan.module) ^ 2, static_cast<uint64_t>(i));
      order.emplace_back(random.next(), i);
    }
    std::sort(order.begin(), order.end());
    const auto found = std::find_if(order.begin(), order.end(),
                                    [&](const auto& entry) { return entry.second == expert; });
    return found - order.begin();
  }

  static float vector_value(const TensorSpec& tensor, const ModulePlan& plan,
                            PositionedRandom* random) {
    if (tensor.name.ends_with("a_log")) {
      return static_cast<float>(std::log(1.0 + 15.0 * random->uniform()));
    }
    if (tensor.name.ends_with("dt_bias")) return static_cast<float>(-4.0 + 3.0 * random->uniform());
    // Norms: one in use, whatever the layout stores.
    return 1.0f - plan.weight_offset + 0.05f * random->normal();
  }

  // Uniform codes with the scale that gives the wanted deviation: no float per weight is drawn.
  static void fill_codes(const ModulePlan& plan, float deviation, int64_t index,
                         PositionedRandom* random, const PackedRows& out) {
    const int64_t bytes = plan.value_row_bytes();
    random->fill_bytes({out.values + index * bytes, static_cast<size_t>(bytes)});
    const float levels = static_cast<float>((1 << plan.format->bits) - 1);
    const float scale = deviation * std::sqrt(12.0f) / (levels + 1);
    const int64_t groups = plan.format->groups(plan.cols);
    for (int64_t group = 0; group < groups; ++group) {
      const float own = scale * (1.0f + 0.1f * random->normal());
      store_value(own, plan.dtype, out.scales, index * groups + group);
      store_value(-0.5f * levels * own, plan.dtype, out.biases, index * groups + group);
    }
  }

  static void quantize_row(const ModulePlan& plan, const std::vector<float>& values,
                           std::vector<uint8_t>* codes, int64_t index, const PackedRows& out) {
    store_quantized_row(*plan.format, plan.dtype, values, codes,
                        {.values = out.values + index * plan.value_row_bytes(),
                         .scales = out.scales + index * plan.scale_row_bytes(),
                         .biases = out.biases + index * plan.scale_row_bytes()});
  }

  const ModelSpec& spec_;
  const SynthOptions& options_;
  const size_t layers_;
};

// The number of layers, wherever the config keeps it, and the list of kinds beside it.
Status cut_layers(JsonValue* config, int64_t layers) {
  auto* members = std::get_if<JsonValue::Object>(&config->data);
  for (auto& [key, value] : *members) {
    if (key == "text_config" && value.as_object() != nullptr) {
      MOTLEY_RETURN_IF_ERROR(cut_layers(&value, layers));
    } else if (key == "num_hidden_layers") {
      const int64_t* count = std::get_if<int64_t>(&value.data);
      if (count == nullptr || layers > *count) {
        return invalid_argument(fmt::format("--layers {}: the configuration has fewer", layers));
      }
      value.data = layers;
    } else if (auto* kinds = std::get_if<JsonValue::Array>(&value.data);
               key == "layer_types" && kinds != nullptr && std::ssize(*kinds) > layers) {
      kinds->resize(static_cast<size_t>(layers));
    }
  }
  return Status::ok();
}

}  // namespace

Status synthesise_checkpoint(Context& context, const SynthOptions& options) {
  MOTLEY_RETURN_IF_ERROR(options.format.validate());
  if (!(options.router_skew >= 0 && options.router_skew <= 10)) {
    return invalid_argument(
        fmt::format("router skew is {}, allowed are 0 to 10", options.router_skew));
  }
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(context.faults, options.config_path));
  std::string text(static_cast<size_t>(std::min(file.size(), int64_t{16} << 20)), '\0');
  MOTLEY_RETURN_IF_ERROR(file.read_exact(0, std::as_writable_bytes(std::span(text))));
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson original, ConfigJson::parse(text, options.config_path));
  JsonValue changed = original.root().value();
  if (options.layers > 0) MOTLEY_RETURN_IF_ERROR(cut_layers(&changed, options.layers));
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson config,
                          ConfigJson::parse(json_text(changed), options.config_path));
  MOTLEY_ASSIGN_OR_RETURN(
      const ModelSpec spec,
      plan_model_spec(config, {.layout = options.format.layout,
                               .drafts = options.drafts,
                               .separate_experts = options.format.spelling.has_value()}));
  const RandomSource source(spec, options);
  return export_checkpoint(context, options.format, changed, plan_modules(spec, options.format),
                           source, {}, options.output);
}

}  // namespace motley
