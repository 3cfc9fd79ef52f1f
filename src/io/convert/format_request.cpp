#include "io/convert/format_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace motley {
namespace {

Status check_format(const MlxAffineFormat& format) {
  if (format.is_valid()) return Status::ok();
  return invalid_argument(
      fmt::format("{} bits with groups of {} is no MLX format; bits are 2, 3, 4, 5, 6 or 8, groups "
                  "32, 64 or 128",
                  format.bits, format.group_size));
}

}  // namespace

Status FormatRequest::validate() const {
  if (layout == CheckpointLayout::kHuggingFace) return Status::ok();
  MOTLEY_RETURN_IF_ERROR(check_format(standard));
  return experts ? check_format(*experts) : Status::ok();
}

std::optional<MlxAffineFormat> FormatRequest::format_of(const TensorSpec& tensor) const {
  const bool is_matrix = tensor.role == TensorRole::kMatrix || tensor.role == TensorRole::kExperts;
  if (layout == CheckpointLayout::kHuggingFace || !is_matrix) return std::nullopt;
  MlxAffineFormat format = standard;
  if (tensor.part == "experts" && experts) format = *experts;
  if (tensor.part == "router" || tensor.part == "draft") {
    format.bits = std::max(format.bits, kMinimumGateBits);
  }
  if (tensor.part == "router") format.group_size = 64;
  const int64_t cols = tensor.shape[tensor.shape.rank() - 1];
  const bool fits = cols % format.group_size == 0 && cols * format.bits % 32 == 0;
  return fits ? std::optional(format) : std::nullopt;
}

std::optional<FloatSpelling> FormatRequest::spelling_of(const TensorSpec& tensor) const {
  const bool is_matrix = tensor.role == TensorRole::kMatrix || tensor.role == TensorRole::kExperts;
  if (layout != CheckpointLayout::kHuggingFace || !spelling || !is_matrix) return std::nullopt;
  for (const std::string_view part : {"embedding", "head", "router"}) {
    if (tensor.part == part) return std::nullopt;
  }
  if (tensor.name.find("indexer.") != std::string::npos) return std::nullopt;
  for (const std::string_view leaf : {"router", "shared_expert_gate", "in_proj_a", "in_proj_b"}) {
    if (tensor.name.ends_with(leaf)) return std::nullopt;
  }
  if (tensor.part == "draft" && *spelling != FloatSpelling::kFp8) return std::nullopt;
  const BlockFloatFormat format = block_float_format(spelled(*spelling, "").kind);
  const int64_t cols = tensor.shape[tensor.shape.rank() - 1];
  if (format.block_rows == 1 && cols % format.block_cols != 0) return std::nullopt;
  return spelling;
}

Result<FormatRequest> parse_format(const std::string& text) {
  FormatRequest request;
  if (text == "bf16") {
    request.layout = CheckpointLayout::kHuggingFace;
    return request;
  }
  for (const auto& [name, spelling] :
       {std::pair("fp8", FloatSpelling::kFp8), std::pair("nvfp4", FloatSpelling::kNvfp4),
        std::pair("nvfp4-packed", FloatSpelling::kNvfp4Packed),
        std::pair("mxfp4", FloatSpelling::kMxfp4Packed)}) {
    if (text != name) continue;
    request.layout = CheckpointLayout::kHuggingFace;
    request.spelling = spelling;
    return request;
  }
  const auto unknown = [&] {
    return invalid_argument(fmt::format(
        "format '{}' is unknown; formats are bf16, fp8, nvfp4, nvfp4-packed, mxfp4 and mlxB or "
        "mlxBgG, for example mlx4 or mlx4g32",
        text));
  };
  if (!text.starts_with("mlx")) return unknown();
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data() + 3, end, request.standard.bits);
  if (error != std::errc()) return unknown();
  if (rest != end && *rest == 'g') {
    const auto group = std::from_chars(rest + 1, end, request.standard.group_size);
    if (group.ec != std::errc()) return unknown();
    rest = group.ptr;
  }
  if (rest != end) return unknown();
  MOTLEY_RETURN_IF_ERROR(request.validate());
  return request;
}

}  // namespace motley
