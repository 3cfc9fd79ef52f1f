#include "spec/quantization_config.h"

#include <fmt/format.h>

namespace motley {
namespace {

Result<MlxAffineFormat> read_format(const ConfigObject& object) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string mode, object.text_or("mode", "affine"));
  if (mode != "affine") {
    return object.unsupported_value(
        "mode", fmt::format("{} is not supported; affine is", json_excerpt(mode)));
  }
  MOTLEY_ASSIGN_OR_RETURN(const int64_t bits, object.integer("bits", 2, 8));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t group_size, object.integer("group_size", 32, 128));
  const MlxAffineFormat format{.bits = static_cast<int>(bits),
                               .group_size = static_cast<int>(group_size)};
  if (!format.is_valid()) {
    return object.error("bits", fmt::format("{} bits in groups of {}: bits must be 2, 3, 4, 5, 6 "
                                            "or 8 and groups 32, 64 or 128",
                                            bits, group_size));
  }
  return format;
}

// One member of `quantization` that is neither bits, group_size nor mode.
Status read_override(const ConfigObject& object, const std::string& path, const JsonValue& value,
                     QuantizationConfig* config) {
  if (const auto* quantized = std::get_if<bool>(&value.data)) {
    config->overrides[path] =
        *quantized ? config->standard : std::optional<MlxAffineFormat>(std::nullopt);
    return Status::ok();
  }
  if (value.as_object() == nullptr) {
    return object.error(path, "must be {group_size, bits}, true or false");
  }
  MOTLEY_ASSIGN_OR_RETURN(const ConfigObject member, object.object(path));
  MOTLEY_ASSIGN_OR_RETURN(config->overrides[path], read_format(member));
  return Status::ok();
}

}  // namespace

std::optional<MlxAffineFormat> QuantizationConfig::format_of(std::string_view module) const {
  const auto found = overrides.find(module);
  return found == overrides.end() ? standard : found->second;
}

bool QuantizationConfig::requires_quantized(std::string_view module) const {
  const auto found = overrides.find(module);
  return found != overrides.end() && found->second.has_value();
}

bool has_quant_method(const ConfigObject& root) {
  const JsonValue* member = root.value().find("quantization_config");
  return member != nullptr && member->find("quant_method") != nullptr;
}

Result<QuantizationConfig> read_quantization_config(const ConfigJson& config) {
  constexpr std::string_view kMain = "quantization";
  constexpr std::string_view kDuplicate = "quantization_config";
  const ConfigObject root = config.root();
  QuantizationConfig result;
  if (root.has(kDuplicate)) {
    MOTLEY_ASSIGN_OR_RETURN(const ConfigObject duplicate, root.object(kDuplicate));
    if (has_quant_method(root)) {
      if (root.has(kMain)) {
        return root.error(kDuplicate, "has a quant_method beside quantization, which is MLX's");
      }
      MOTLEY_ASSIGN_OR_RETURN(result.claim, read_quantization_claim(duplicate));
      return result;
    }
    if (root.has(kMain) && root.value().find(kMain)->data != duplicate.value().data) {
      return root.error(kDuplicate, "contradicts quantization");
    }
  } else if (!root.has(kMain)) {
    return result;
  }
  MOTLEY_ASSIGN_OR_RETURN(const ConfigObject object,
                          root.object(root.has(kMain) ? kMain : kDuplicate));
  MOTLEY_ASSIGN_OR_RETURN(result.standard, read_format(object));
  for (const auto& [path, value] : *object.value().as_object()) {
    if (path == "bits" || path == "group_size" || path == "mode") continue;
    MOTLEY_RETURN_IF_ERROR(read_override(object, path, value, &result));
  }
  return result;
}

}  // namespace motley
