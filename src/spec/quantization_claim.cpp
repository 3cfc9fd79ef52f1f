#include "spec/quantization_claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace motley {
namespace {

constexpr std::array kAllKinds = {FloatKind::kFp8, FloatKind::kNvfp4, FloatKind::kMxfp4};

struct Named {
  std::string_view name;
  std::array<std::optional<FloatKind>, 3> kinds;
};

// "format" of compressed-tensors.
constexpr std::array kPackings = {
    Named{"float-quantized", {FloatKind::kFp8}},
    Named{"naive-quantized", {FloatKind::kFp8}},
    Named{"nvfp4-pack-quantized", {FloatKind::kNvfp4}},
    Named{"mxfp4-pack-quantized", {FloatKind::kMxfp4}},
    Named{"mixed-precision", {FloatKind::kFp8, FloatKind::kNvfp4, FloatKind::kMxfp4}},
};
// "quant_algo" of ModelOpt.
constexpr std::array kAlgorithms = {
    Named{"FP8", {FloatKind::kFp8}},
    Named{"FP8_PB_WO", {FloatKind::kFp8}},
    Named{"FP8_PER_CHANNEL_PER_TOKEN", {FloatKind::kFp8}},
    Named{"NVFP4", {FloatKind::kNvfp4}},
    Named{"NVFP4_AWQ", {FloatKind::kNvfp4}},
    Named{"W4A16_NVFP4", {FloatKind::kNvfp4}},
    Named{"MXFP4", {FloatKind::kMxfp4}},
    Named{"W4A16_MXFP4", {FloatKind::kMxfp4}},
    Named{"MIXED_PRECISION", {FloatKind::kFp8, FloatKind::kNvfp4, FloatKind::kMxfp4}},
};

template <size_t count>
Status read_kinds(const ConfigObject& object, std::string_view key,
                  const std::array<Named, count>& known, QuantizationClaim* claim) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string name, object.text(key));
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const Named& entry) { return entry.name == name; });
  if (found == known.end()) {
    std::vector<std::string_view> names;
    for (const Named& entry : known) names.push_back(entry.name);
    return object.unsupported_value(key, fmt::format("{} is not supported; {} are",
                                                     json_excerpt(name), fmt::join(names, ", ")));
  }
  for (const std::optional<FloatKind>& kind : found->kinds) {
    if (kind) claim->kinds.push_back(*kind);
  }
  return Status::ok();
}

Status read_fp8(const ConfigObject& object, QuantizationClaim* claim) {
  claim->kinds = {FloatKind::kFp8};
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<int64_t> block,
                          object.integers("weight_block_size", 1, 1 << 20));
  if (!block.empty() && block != std::vector<int64_t>{128, 128}) {
    return object.unsupported_value(
        "weight_block_size",
        fmt::format("blocks of {} are not supported; 128 x 128 are", fmt::join(block, " x ")));
  }
  return Status::ok();
}

}  // namespace

bool QuantizationClaim::allows(FloatKind kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string QuantizationClaim::kind_names() const {
  std::vector<std::string_view> names;
  for (const FloatKind kind : kAllKinds) {
    if (allows(kind)) names.push_back(float_kind_name(kind));
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

Result<QuantizationClaim> read_quantization_claim(const ConfigObject& object) {
  QuantizationClaim claim;
  MOTLEY_ASSIGN_OR_RETURN(claim.method, object.text("quant_method"));
  if (claim.method == "fp8") {
    MOTLEY_RETURN_IF_ERROR(read_fp8(object, &claim));
  } else if (claim.method == "mxfp4") {
    claim.kinds = {FloatKind::kMxfp4};
  } else if (claim.method == "compressed-tensors") {
    MOTLEY_RETURN_IF_ERROR(read_kinds(object, "format", kPackings, &claim));
  } else if (claim.method == "modelopt" || claim.method == "modelopt_fp4") {
    MOTLEY_RETURN_IF_ERROR(read_kinds(object, "quant_algo", kAlgorithms, &claim));
  } else {
    return object.unsupported_value(
        "quant_method",
        fmt::format("{} is not supported; fp8, modelopt, compressed-tensors, mxfp4 and MLX's own "
                    "quantization are",
                    json_excerpt(claim.method)));
  }
  for (const std::string_view key :
       {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"}) {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<std::string> names, object.texts(key));
    claim.excluded.insert(names.begin(), names.end());
  }
  return claim;
}

}  // namespace motley
