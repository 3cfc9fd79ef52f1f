#include "io/convert/module_plan.h"

#include <algorithm>
#include <map>

namespace motley {
namespace {

// Decay parameters lose the model in 16 bits; real files keep them in float32.
bool needs_float32(const TensorSpec& tensor) {
  return tensor.role == TensorRole::kTable ||
         (tensor.role == TensorRole::kVector && tensor.pieces.front().bare);
}

ModulePlan new_plan(const TensorSpec& tensor, const TensorPiece& piece,
                    const FormatRequest& request) {
  ModulePlan plan{.module = piece.module, .bare = piece.bare, .role = tensor.role};
  plan.experts = tensor.role == TensorRole::kExperts ? tensor.shape[0] : 0;
  plan.cols = tensor.role == TensorRole::kVector ? 1 : tensor.shape[tensor.shape.rank() - 1];
  plan.format = request.format_of(tensor);
  plan.spelling = request.spelling_of(tensor);
  if (plan.spelling) plan.block = block_float_format(spelled(*plan.spelling, "").kind);
  plan.is_draft = tensor.part == "draft";
  if (needs_float32(tensor)) plan.dtype = DType::kF32;
  return plan;
}

void note_norm_offsets(const ModelSpec& spec, std::map<int32_t, float>* offsets) {
  const auto note = [&](const NormSpec& norm) {
    (*offsets)[norm.weight.index] = norm.weight_offset;
  };
  const auto note_layer = [&](const LayerSpec& layer) {
    note(layer.mixer_norm);
    note(layer.feed_forward_norm);
    if (const auto* attention = std::get_if<GatedAttentionSpec>(&layer.mixer)) {
      note(attention->q_norm);
      note(attention->k_norm);
    }
  };
  for (const LayerSpec& layer : spec.layers) note_layer(layer);
  for (const DraftSpec& draft : spec.drafts) {
    note_layer(draft.layer);
    note(draft.embedding_norm);
    note(draft.hidden_norm);
    note(draft.final_norm);
  }
  note(spec.final_norm);
}

// A module whose name holds "{}" becomes one module per expert.
std::vector<ModulePlan> split_experts(std::vector<ModulePlan> plans) {
  std::vector<ModulePlan> result;
  for (ModulePlan& plan : plans) {
    const size_t mark = plan.module.find("{}");
    if (mark == std::string::npos) {
      result.push_back(std::move(plan));
      continue;
    }
    for (int64_t expert = 0; expert < plan.experts; ++expert) {
      ModulePlan one = plan;
      one.module.replace(mark, 2, std::to_string(expert));
      one.experts = 0;
      one.first_expert = expert;
      result.push_back(std::move(one));
    }
  }
  return result;
}

}  // namespace

bool ModulePlan::has_tensor_scale() const {
  return spelling && block.scale == BlockFloatFormat::Scale::kE4M3;
}

std::vector<TensorDeclaration> ModulePlan::declarations(CheckpointLayout layout) const {
  if (spelling) return block_declarations();
  const auto shape_of = [&](int64_t last) {
    std::vector<int64_t> shape;
    if (experts > 0) shape.push_back(experts);
    shape.push_back(rows);
    if (role == TensorRole::kConvolution) {
      const bool is_mlx = layout == CheckpointLayout::kMlx;
      shape.push_back(is_mlx ? last : 1);
      shape.push_back(is_mlx ? 1 : last);
    } else if (role != TensorRole::kVector) {
      shape.push_back(last);
    }
    return shape;
  };
  const std::string name = bare ? module : module + ".weight";
  if (!format) return {{name, dtype, shape_of(cols)}};
  const std::vector<int64_t> scale_shape = shape_of(format->groups(cols));
  return {{name, DType::kU32, shape_of(cols * format->bits / 32)},
          {module + ".scales", dtype, scale_shape},
          {module + ".biases", dtype, scale_shape}};
}

std::vector<TensorDeclaration> ModulePlan::block_declarations() const {
  const BlockFloatTensors names = spelled(*spelling, module);
  const bool fp8 = names.kind == FloatKind::kFp8;
  const DType scale_type = fp8                               ? DType::kF32
                           : names.kind == FloatKind::kNvfp4 ? DType::kF8E4M3
                                                             : DType::kU8;
  std::vector<TensorDeclaration> result{
      {names.codes, fp8 ? DType::kF8E4M3 : DType::kU8, {rows, block.row_bytes(cols)}},
      {names.scales, scale_type, {block.block_lines(rows), block.blocks(cols)}}};
  if (names.tensor_scale.empty()) return result;
  // One writer has a scalar, the other a list of one.
  result.push_back({names.tensor_scale, DType::kF32,
                    names.is_reciprocal ? std::vector<int64_t>{1} : std::vector<int64_t>{}});
  return result;
}

std::vector<ModulePlan> plan_modules(const ModelSpec& spec, const FormatRequest& request) {
  std::map<int32_t, float> norm_offsets;
  note_norm_offsets(spec, &norm_offsets);
  std::vector<ModulePlan> plans;
  std::map<std::string, size_t> plan_of;  // by the module name of the piece
  for (size_t index = 0; index < spec.tensors.size(); ++index) {
    const TensorSpec& tensor = spec.tensors[index];
    const TensorHandle handle{static_cast<int32_t>(index)};
    int64_t tensor_row = 0;
    for (const TensorPiece& piece : tensor.pieces) {
      const auto [found, added] = plan_of.try_emplace(piece.module, plans.size());
      if (added) plans.push_back(new_plan(tensor, piece, request));
      ModulePlan& plan = plans[found->second];
      plan.rows = std::max(plan.rows, piece.row_begin + piece.row_count);
      if (const auto offset = norm_offsets.find(handle.index); offset != norm_offsets.end()) {
        plan.weight_offset = offset->second;
      }
      plan.sources.push_back({.tensor = handle,
                              .row_begin = piece.row_begin,
                              .row_count = piece.row_count,
                              .tensor_begin = tensor_row});
      tensor_row += piece.row_count;
    }
  }
  for (ModulePlan& plan : plans) {
    std::sort(plan.sources.begin(), plan.sources.end(),
              [](const ModuleRows& a, const ModuleRows& b) { return a.row_begin < b.row_begin; });
  }
  std::stable_partition(plans.begin(), plans.end(),
                        [](const ModulePlan& plan) { return !plan.is_draft; });
  return split_experts(std::move(plans));
}

}  // namespace motley
