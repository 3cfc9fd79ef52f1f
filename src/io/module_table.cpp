#include "io/module_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "io/block_float_modules.h"
#include "io/gguf_modules.h"

namespace motley {
namespace {

constexpr size_t kListed = 5;  // names printed of a longer list

std::string weight_name(const std::string& module, bool bare) {
  return bare ? module : module + ".weight";
}

// One module per expert, as opposed to a stack.
bool is_separate(const TensorPiece& piece) {
  return piece.module.find("{}") != std::string::npos;
}

// The module of one expert: "{}" in the name stands for its id.
std::string expert_module(const std::string& pattern, int64_t expert) {
  const size_t place = pattern.find("{}");
  if (place == std::string::npos) return pattern;
  return fmt::format("{}{}{}", std::string_view(pattern).substr(0, place), expert,
                     std::string_view(pattern).substr(place + 2));
}

std::optional<WeightFormat> plain_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBf16:
      return WeightFormat::kBf16;
    default:
      return std::nullopt;
  }
}

std::vector<int64_t> with_experts(const Module& module, std::vector<int64_t> shape) {
  if (module.stacked) shape.insert(shape.begin(), module.experts);
  return shape;
}

// [n] with any number of dimensions of 1 around it: per-head values come as [1, 1, n, 1] too.
bool holds_one_line(const std::vector<int64_t>& shape, int64_t count) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t dim) { return dim != 1; }) <= 1 &&
         std::any_of(shape.begin(), shape.end(), [count](int64_t dim) { return dim == count; });
}

std::vector<int64_t> plain_shape(const Module& module, const CheckpointTensor& tensor) {
  switch (module.role) {
    case TensorRole::kVector:
      if (holds_one_line(tensor.entry.shape, module.rows)) return tensor.entry.shape;
      return {module.rows};
    case TensorRole::kConvolution:
      // The family has told [C, 1, k] from [C, k, 1]; the bytes are the same.
      if (tensor.entry.shape == std::vector<int64_t>{module.rows, module.cols, 1}) {
        return tensor.entry.shape;
      }
      // GGUF drops the dimension of 1.
      if (tensor.entry.shape == std::vector<int64_t>{module.rows, module.cols}) {
        return tensor.entry.shape;
      }
      return {module.rows, 1, module.cols};
    default:
      // A matrix of one row is a line of values in GGUF.
      if (!module.stacked && module.rows == 1 &&
          tensor.entry.shape == std::vector<int64_t>{module.cols}) {
        return tensor.entry.shape;
      }
      return with_experts(module, {module.rows, module.cols});
  }
}

// The tensors of a block-scaled module. A GGUF file has none: its blocks are U8 too.
auto block_tensors(const Checkpoint& checkpoint, const std::string& module, bool bare) {
  const bool is_gguf = checkpoint.gguf() != nullptr;
  return is_gguf ? std::nullopt : find_block_float(checkpoint, module, bare);
}

WeightPlane shifted(const WeightPlane& plane, int64_t rows) {
  if (plane.data == nullptr) return plane;
  return {plane.data + rows * plane.row_bytes, plane.row_bytes};
}

std::string counted(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "tensor is" : "tensors are");
}

std::string listed(const std::vector<std::string>& names, size_t count) {
  const size_t rest = count - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     rest == 0 ? std::string() : fmt::format(" and {} more", rest));
}

}  // namespace

WeightMatrix Module::expert(int64_t index) const {
  WeightMatrix result = matrix;
  result.codes = shifted(matrix.codes, index * rows);
  result.scales = shifted(matrix.scales, index * matrix.scale_lines());
  result.biases = shifted(matrix.biases, index * rows);
  return result;
}

Result<ModuleTable> ModuleTable::create(const Checkpoint& checkpoint, const ModelSpec& spec,
                                        const QuantizationConfig& quantization) {
  ModuleTable table(checkpoint, quantization);
  MOTLEY_RETURN_IF_ERROR(table.check_presence(spec));
  for (const TensorSpec& tensor : spec.tensors) table.collect(tensor);
  for (Module& module : table.modules_) MOTLEY_RETURN_IF_ERROR(table.bind(&module));
  MOTLEY_RETURN_IF_ERROR(table.check_claim());
  MOTLEY_RETURN_IF_ERROR(table.account(spec));
  return table;
}

void ModuleTable::collect(const TensorSpec& tensor) {
  for (const TensorPiece& piece : tensor.pieces) {
    const bool separate = is_separate(piece);
    const bool stack = tensor.role == TensorRole::kExperts;
    MOTLEY_CHECK(!stack || tensor.pieces.size() == 1, "experts come in one piece");
    const int64_t count = separate ? tensor.shape[0] : 1;
    for (int64_t expert = 0; expert < count; ++expert) {
      std::string name = expert_module(piece.module, expert);
      const auto [found, is_new] = index_.try_emplace(name, modules_.size());
      if (is_new) {
        modules_.push_back({.name = std::move(name),
                            .role = tensor.role,
                            .bare = piece.bare,
                            .experts = stack && !separate ? tensor.shape[0] : 1,
                            .stacked = stack && !separate,
                            .cols = tensor.role == TensorRole::kVector
                                        ? 1
                                        : tensor.shape[tensor.shape.rank() - 1]});
      }
      modules_[found->second].rows += piece.row_count;
    }
  }
}

const Module& ModuleTable::module_of(const TensorPiece& piece, int64_t expert) const {
  const auto found = index_.find(expert_module(piece.module, expert));
  MOTLEY_CHECK(found != index_.end(), "piece of another model");
  return modules_[found->second];
}

// Before anything is collected: a small file may claim millions of experts.
Status ModuleTable::check_presence(const ModelSpec& spec) const {
  constexpr size_t kEnough = 10'000;
  std::vector<std::string> names;
  size_t count = 0;
  const auto need = [&](std::string name) {
    if (checkpoint_.find_tensor(name) != nullptr) return;
    if (++count <= kListed) names.push_back(std::move(name));
  };
  const auto need_module = [&](const std::string& module, bool bare) {
    if (const auto block = block_tensors(checkpoint_, module, bare)) {
      need(block->scales);
      if (!block->tensor_scale.empty()) need(block->tensor_scale);
      return;
    }
    need(weight_name(module, bare));
    if (bare) return;
    const bool has_scales = checkpoint_.find_tensor(module + ".scales") != nullptr;
    if (has_scales || quantization_.requires_quantized(module)) {
      need(module + ".scales");
      need(module + ".biases");
    }
  };
  for (const TensorSpec& tensor : spec.tensors) {
    const std::string* previous = nullptr;
    for (const TensorPiece& piece : tensor.pieces) {
      if (previous != nullptr && *previous == piece.module) continue;
      previous = &piece.module;
      const int64_t experts = is_separate(piece) ? tensor.shape[0] : 1;
      for (int64_t expert = 0; expert < experts && count < kEnough; ++expert) {
        need_module(expert_module(piece.module, expert), piece.bare);
      }
    }
  }
  if (count == 0) return Status::ok();
  return not_found(fmt::format("{}: {}{} missing: {}", checkpoint_.directory().path(),
                               count >= kEnough ? "at least " : "", counted(count),
                               listed(names, count)));
}

Status ModuleTable::error(const CheckpointTensor& tensor, std::string_view what) const {
  return corrupt(fmt::format("{}: tensor '{}': {}", checkpoint_.shard(tensor).file().name(),
                             tensor.name, what));
}

Status ModuleTable::check_shape(const CheckpointTensor& tensor,
                                const std::vector<int64_t>& expected) const {
  if (tensor.entry.shape == expected) return Status::ok();
  return error(tensor, fmt::format("shape [{}], config.json needs [{}]",
                                   fmt::join(tensor.entry.shape, ", "), fmt::join(expected, ", ")));
}

Status ModuleTable::bind(Module* module) const {
  if (const auto block = block_tensors(checkpoint_, module->name, module->bare)) {
    return bind_block(module, *block);
  }
  const CheckpointTensor& weight =
      *checkpoint_.find_tensor(weight_name(module->name, module->bare));
  if (weight.block) return bind_gguf(module, weight);
  if (!module->bare && checkpoint_.find_tensor(module->name + ".scales") != nullptr) {
    return bind_affine(module, weight);
  }
  return bind_plain(module, weight);
}

Status ModuleTable::bind_plain(Module* module, const CheckpointTensor& weight) const {
  const std::optional<WeightFormat> format = plain_format(weight.entry.dtype);
  if (!format) {
    return error(weight, fmt::format("element type {}, but BF16, F16, F32, MLX affine, FP8, NVFP4 "
                                     "or MXFP4 is needed",
                                     dtype_name(weight.entry.dtype)));
  }
  MOTLEY_RETURN_IF_ERROR(check_shape(weight, plain_shape(*module, weight)));
  module->tensors = {&weight};
  module->matrix = {.format = *format,
                    .rows = module->rows,
                    .cols = module->cols,
                    .codes = {weight.bytes.data(), module->cols * dtype_bytes(weight.entry.dtype)}};
  return Status::ok();
}

Status ModuleTable::bind_gguf(Module* module, const CheckpointTensor& weight) const {
  if (module->role != TensorRole::kMatrix && module->role != TensorRole::kExperts) {
    return error(weight, "only matrices may be quantised");
  }
  MOTLEY_RETURN_IF_ERROR(check_shape(weight, plain_shape(*module, weight)));
  module->tensors = {&weight};
  module->matrix = gguf_matrix(weight, module->rows, module->cols);
  return Status::ok();
}

// Bits and group size follow from the shapes; the configuration must say the same.
Result<MlxAffineFormat> ModuleTable::derive_affine(const Module& module,
                                                   const CheckpointTensor& weight,
                                                   const CheckpointTensor& scales) const {
  const int64_t groups = scales.entry.shape.empty() ? 0 : scales.entry.shape.back();
  const int64_t words = weight.entry.shape.empty() ? 0 : weight.entry.shape.back();
  if (groups < 1 || module.cols % groups != 0 || words < 1 || words > module.cols) {
    return error(scales, fmt::format("{} groups do not divide {} columns", groups, module.cols));
  }
  const int64_t group_size = module.cols / groups;
  const int64_t bits = words * 32 / module.cols;
  const MlxAffineFormat derived{
      .bits = static_cast<int>(std::min<int64_t>(bits, 32)),
      .group_size = static_cast<int>(std::min<int64_t>(group_size, 1024))};
  if (!derived.is_valid() || bits * module.cols != words * 32) {
    return error(weight, fmt::format("{} words and {} groups for {} columns are no MLX format",
                                     words, groups, module.cols));
  }
  const std::optional<MlxAffineFormat> stated = quantization_.format_of(module.name);
  if (!stated) return error(scales, "config.json does not say that this is quantised");
  if (*stated != derived) {
    return error(weight,
                 fmt::format("holds {} bits in groups of {}, config.json says {} in {}",
                             derived.bits, derived.group_size, stated->bits, stated->group_size));
  }
  return derived;
}

Status ModuleTable::bind_affine(Module* module, const CheckpointTensor& weight) const {
  const CheckpointTensor& scales = *checkpoint_.find_tensor(module->name + ".scales");
  const CheckpointTensor& biases = *checkpoint_.find_tensor(module->name + ".biases");
  if (module->role != TensorRole::kMatrix && module->role != TensorRole::kExperts) {
    return error(scales, "only matrices may be quantised");
  }
  if (weight.entry.dtype != DType::kU32) {
    return error(weight, fmt::format("element type {}, but MLX codes are U32",
                                     dtype_name(weight.entry.dtype)));
  }
  if (!plain_format(scales.entry.dtype)) {
    return error(scales, fmt::format("element type {}, but BF16, F16 or F32 is needed",
                                     dtype_name(scales.entry.dtype)));
  }
  if (biases.entry.dtype != scales.entry.dtype) {
    return error(biases, "scales and biases differ in element type");
  }
  MOTLEY_ASSIGN_OR_RETURN(const MlxAffineFormat format, derive_affine(*module, weight, scales));
  const int64_t groups = format.groups(module->cols);
  MOTLEY_RETURN_IF_ERROR(check_shape(
      weight, with_experts(*module, {module->rows, format.row_bytes(module->cols) / 4})));
  MOTLEY_RETURN_IF_ERROR(check_shape(scales, with_experts(*module, {module->rows, groups})));
  MOTLEY_RETURN_IF_ERROR(check_shape(biases, with_experts(*module, {module->rows, groups})));
  const int64_t scale_bytes = groups * dtype_bytes(scales.entry.dtype);
  module->tensors = {&weight, &scales, &biases};
  module->matrix = {.format = WeightFormat::kMlxAffine,
                    .rows = module->rows,
                    .cols = module->cols,
                    .codes = {weight.bytes.data(), format.row_bytes(module->cols)},
                    .scales = {scales.bytes.data(), scale_bytes},
                    .biases = {biases.bytes.data(), scale_bytes},
                    .affine = format,
                    .scale_dtype = scales.entry.dtype};
  return Status::ok();
}

Status ModuleTable::bind_block(Module* module, const BlockFloatTensors& names) const {
  const CheckpointTensor& codes = *checkpoint_.find_tensor(names.codes);
  if (module->role != TensorRole::kMatrix && module->role != TensorRole::kExperts) {
    return error(codes, "only matrices may be quantised");
  }
  MOTLEY_ASSIGN_OR_RETURN(
      module->matrix,
      bind_block_float(checkpoint_, names,
                       {module->rows, module->cols, module->stacked ? module->experts : 0}));
  module->kind = names.kind;
  module->tensors = {&codes, checkpoint_.find_tensor(names.scales)};
  if (!names.tensor_scale.empty()) {
    module->tensors.push_back(checkpoint_.find_tensor(names.tensor_scale));
    module->scalar_bytes = static_cast<int64_t>(module->tensors.back()->bytes.size());
  }
  return Status::ok();
}

// What config.json says of block-scaled floats, against what the modules hold.
Status ModuleTable::check_claim() const {
  if (!quantization_.claim) return Status::ok();
  const QuantizationClaim& claim = *quantization_.claim;
  bool is_used = false;
  for (const Module& module : modules_) {
    if (!module.is_block_float()) continue;
    is_used = true;
    const CheckpointTensor& codes = *module.tensors.front();
    if (!claim.allows(module.kind)) {
      return error(codes, fmt::format("holds {}, config.json says {} (quantization_config)",
                                      float_kind_name(module.kind), claim.kind_names()));
    }
    if (claim.excluded.contains(module.name)) {
      return error(codes, fmt::format("holds {}, config.json lists {} as not quantised",
                                      float_kind_name(module.kind), module.name));
    }
  }
  if (is_used) return Status::ok();
  return corrupt(
      fmt::format("{}/config.json: quantization_config.quant_method is {}, but no tensor "
                  "holds {}",
                  checkpoint_.directory().path(), json_excerpt(claim.method), claim.kind_names()));
}

// The reason why `name`, a scale beside a module, is not used; empty when it is no such scale.
std::string_view ModuleTable::unused_scale(std::string_view name) const {
  for (const UnusedScale& scale : kUnusedScales) {
    if (!name.ends_with(scale.suffix)) continue;
    const std::string module(name.substr(0, name.size() - scale.suffix.size()));
    if (index_.contains(module)) return scale.reason;
  }
  return {};
}

Status ModuleTable::account(const ModelSpec& spec) {
  std::vector<bool> used(checkpoint_.tensors().size(), false);
  const CheckpointTensor* first = checkpoint_.tensors().data();
  for (const Module& module : modules_) {
    for (const CheckpointTensor* tensor : module.tensors) {
      used[static_cast<size_t>(tensor - first)] = true;
    }
  }
  std::vector<std::string> strays;
  size_t count = 0;
  for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
    if (used[static_cast<size_t>(&tensor - first)]) continue;
    const auto reason = std::find_if(
        spec.skipped.begin(), spec.skipped.end(),
        [&](const SkippedTensor& skip) { return tensor.name.starts_with(skip.prefix); });
    const std::string_view unused = unused_scale(tensor.name);
    if (reason != spec.skipped.end()) {
      skipped_.push_back({&tensor, reason->reason});
    } else if (!unused.empty()) {
      skipped_.push_back({&tensor, unused});
    } else if (++count <= kListed) {
      strays.push_back(tensor.name);
    }
  }
  if (count == 0) return Status::ok();
  return corrupt(fmt::format("{}: {} not part of this model: {}", checkpoint_.directory().path(),
                             counted(count), listed(strays, count)));
}

std::string format_name(const WeightMatrix& matrix) {
  if (const std::string name = gguf_format_name(matrix); !name.empty()) return name;
  switch (matrix.format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kMlxAffine:
      return fmt::format("mlx {}-bit g{}", matrix.affine.bits, matrix.affine.group_size);
    case WeightFormat::kBlockFloat:
      return block_float_name(matrix.block);
  }
  return "unknown";
}

}  // namespace motley
