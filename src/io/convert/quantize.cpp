#include "io/convert/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "io/convert/block_rows.h"
#include "io/convert/packed_rows.h"
#include "io/gguf_files.h"
#include "io/loader.h"
#include "spec/family_registry.h"

namespace motley {
namespace {

// Rows of the source model, under the canonical names that both specs share.
class LoadedSource final : public ModuleSource {
 public:
  LoadedSource(const LoadedModel& model, const ModelSpec& target) : model_(model), target_(target) {
    for (size_t i = 0; i < model.spec.tensors.size(); ++i) {
      handles_[model.spec.tensors[i].name] = {static_cast<int32_t>(i)};
    }
    note_norms();
  }

  Status check() const {
    for (const TensorSpec& tensor : target_.tensors) {
      if (!handles_.contains(tensor.name)) {
        return not_found("tensor " + tensor.name + " is not in the source checkpoint");
      }
    }
    return Status::ok();
  }

  void fill(const ModulePlan& plan, int64_t expert, int64_t first, int64_t count,
            const PackedRows& out) const override {
    if (plan.spelling) return fill_blocks(plan, expert, first, count, out);
    std::vector<float> row(static_cast<size_t>(plan.cols));
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < count; ++i) {
      decode(plan, expert, first + i, row.data());
      if (plan.format) {
        store_quantized_row(*plan.format, plan.dtype, row, &codes,
                            {.values = out.values + i * plan.value_row_bytes(),
                             .scales = out.scales + i * plan.scale_row_bytes(),
                             .biases = out.biases + i * plan.scale_row_bytes()});
        continue;
      }
      for (int64_t col = 0; col < plan.cols; ++col) {
        store_value(row[static_cast<size_t>(col)], plan.dtype, out.values, i * plan.cols + col);
      }
    }
  }

  float tensor_scale(const ModulePlan& plan) const override {
    const std::lock_guard lock(mutex_);
    const auto found = tensor_scales_.find(plan.module);
    if (found != tensor_scales_.end()) return found->second;
    std::vector<float> row(static_cast<size_t>(plan.cols));
    float amax = 0;
    for (int64_t i = 0; i < plan.rows; ++i) {
      decode(plan, plan.first_expert, i, row.data());
      for (const float value : row) amax = std::max(amax, std::fabs(value));
    }
    const float scale = nvfp4_tensor_scale(amax);
    return tensor_scales_[plan.module] = is_reciprocal(plan) ? 1.0f / scale : scale;
  }

 private:
  static bool is_reciprocal(const ModulePlan& plan) {
    return spelled(*plan.spelling, plan.module).is_reciprocal;
  }

  void fill_blocks(const ModulePlan& plan, int64_t expert, int64_t first, int64_t count,
                   const PackedRows& out) const {
    std::vector<float> values(static_cast<size_t>(count * plan.cols));
    for (int64_t i = 0; i < count; ++i) {
      decode(plan, expert, first + i, values.data() + i * plan.cols);
    }
    float scale = 1.0f;
    if (plan.has_tensor_scale()) {
      scale = tensor_scale(plan);
      if (is_reciprocal(plan)) scale = 1.0f / scale;
    }
    store_block_rows(plan.block, scale, values, plan.cols, out);
  }

  // How the source stores norms: its offset for each norm weight.
  void note_norms() {
    for (const ModulePlan& plan :
         plan_modules(model_.spec, {.layout = CheckpointLayout::kHuggingFace})) {
      for (const ModuleRows& rows : plan.sources) {
        source_offset_[rows.tensor.index] = plan.weight_offset;
      }
    }
  }

  void decode(const ModulePlan& plan, int64_t expert, int64_t module_row, float* out) const {
    const ModuleRows* from = &plan.sources.front();
    for (const ModuleRows& rows : plan.sources) {
      if (rows.row_begin <= module_row) from = &rows;
    }
    const TensorSpec& wanted = target_.tensor(from->tensor);
    const TensorHandle handle = handles_.at(wanted.name);
    const int64_t row = module_row - from->row_begin + from->tensor_begin;
    const LoadedWeights& weights = model_.weights;
    switch (plan.role) {
      case TensorRole::kMatrix:
        return decode_row(weights.matrix(handle), row, out);
      case TensorRole::kExperts:
        return decode_row(weights.expert(handle, static_cast<int>(expert)), row, out);
      case TensorRole::kTable:
        std::memcpy(out, weights.table(handle).row<float>(row),
                    static_cast<size_t>(plan.cols) * sizeof(float));
        return;
      case TensorRole::kConvolution:
        std::memcpy(out, weights.convolution(handle).row<float>(row),
                    static_cast<size_t>(plan.cols) * sizeof(float));
        return;
      case TensorRole::kVector:
        // The value in use is stored + offset; keep it when the two layouts differ.
        *out = weights.vector(handle).as<float>()[row] + source_offset_.at(handle.index) -
               plan.weight_offset;
        return;
    }
  }

  const LoadedModel& model_;
  const ModelSpec& target_;
  std::map<std::string, TensorHandle> handles_;
  std::map<int32_t, float> source_offset_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, float> tensor_scales_;  // by module, as spelled
};

}  // namespace

Status quantize_checkpoint(Context& context, const std::string& input, const FormatRequest& request,
                           const ExportOptions& options) {
  MOTLEY_RETURN_IF_ERROR(request.validate());
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<GgufFiles> gguf,
                          find_gguf_files(context.faults, input));
  if (gguf) {
    return unsupported(input + ": is a GGUF model; quantize reads safetensors checkpoints");
  }
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<CompanionFile> companions,
                          read_companions(context, input));
  MOTLEY_ASSIGN_OR_RETURN(const LoadedModel model, load_model(context, input, {.populate = false}));
  MOTLEY_ASSIGN_OR_RETURN(const ModelDirectory directory,
                          ModelDirectory::open(context.faults, input));
  MOTLEY_ASSIGN_OR_RETURN(const std::string text,
                          directory.read_text("config.json", JsonLimits{}.max_bytes));
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson config, ConfigJson::parse(text, input + "/config.json"));
  const bool has_draft = !model.spec.drafts.empty();
  MOTLEY_ASSIGN_OR_RETURN(
      const ModelSpec target,
      plan_model_spec(config, {.layout = request.layout,
                               .drafts = has_draft,
                               .separate_experts = request.spelling.has_value()}));
  const LoadedSource source(model, target);
  MOTLEY_RETURN_IF_ERROR(source.check());
  return export_checkpoint(context, request, config.root().value(), plan_modules(target, request),
                           source, companions, options);
}

}  // namespace motley
