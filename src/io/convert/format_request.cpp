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

Result<FormatRequest> parse_format(const std::string& text) {
  FormatRequest request;
  if (text == "bf16") {
    request.layout = CheckpointLayout::kHuggingFace;
    return request;
  }
  const auto unknown = [&] {
    return invalid_argument(fmt::format(
        "format '{}' is unknown; formats are bf16 and mlxB or mlxBgG, for example mlx4 or mlx4g32",
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
