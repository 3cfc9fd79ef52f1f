#include "spec/block_float_names.h"

namespace motley {
namespace {

bool has_type(const CatalogEntry* entry, DType dtype) {
  return entry != nullptr && entry->dtype == dtype;
}

// E8M0 scales come as U8, or under the name of newer files.
bool has_e8m0(const CatalogEntry* scales) {
  return has_type(scales, DType::kU8) || has_type(scales, DType::kF8E8M0);
}

// Four-bit codes in the tensor `codes`.
BlockFloatTensors fp4_tensors(const TensorCatalog& catalog, const std::string& module,
                              std::string codes, std::string_view tensor_scale) {
  BlockFloatTensors found{
      .kind = FloatKind::kNvfp4, .codes = std::move(codes), .scales = module + ".weight_scale"};
  const CatalogEntry* scales = catalog.find(found.scales);
  std::string of_tensor = module;
  of_tensor += tensor_scale;
  const bool is_unknown = scales == nullptr && catalog.find(of_tensor) == nullptr;
  if (has_e8m0(scales) || is_unknown) {
    found.kind = FloatKind::kMxfp4;
  } else {
    found.tensor_scale = std::move(of_tensor);
  }
  return found;
}

}  // namespace

std::string_view float_kind_name(FloatKind kind) {
  return kind == FloatKind::kFp8 ? "fp8" : kind == FloatKind::kNvfp4 ? "nvfp4" : "mxfp4";
}

BlockFloatFormat block_float_format(FloatKind kind) {
  return kind == FloatKind::kFp8     ? kFp8Block
         : kind == FloatKind::kNvfp4 ? kNvfp4Block
                                     : kMxfp4Block;
}

BlockFloatTensors spelled(FloatSpelling spelling, const std::string& module) {
  const std::string scale = module + ".weight_scale";
  switch (spelling) {
    case FloatSpelling::kFp8:
      return {.kind = FloatKind::kFp8,
              .codes = module + ".weight",
              .scales = module + ".weight_scale_inv",
              .has_square_blocks = true};
    case FloatSpelling::kNvfp4:
      return {.kind = FloatKind::kNvfp4,
              .codes = module + ".weight",
              .scales = scale,
              .tensor_scale = scale + "_2"};
    case FloatSpelling::kNvfp4Packed:
      return {.kind = FloatKind::kNvfp4,
              .codes = module + ".weight_packed",
              .scales = scale,
              .tensor_scale = module + ".weight_global_scale",
              .is_reciprocal = true};
    case FloatSpelling::kMxfp4Packed:
      break;
  }
  return {.kind = FloatKind::kMxfp4, .codes = module + ".weight_packed", .scales = scale};
}

std::optional<BlockFloatTensors> find_block_float(const TensorCatalog& catalog,
                                                  const std::string& module, bool bare) {
  const std::string name = bare ? module : module + ".weight";
  const CatalogEntry* weight = catalog.find(name);
  if (has_type(weight, DType::kF8E4M3)) {
    BlockFloatTensors found{.kind = FloatKind::kFp8, .codes = name, .has_square_blocks = true};
    found.scales = name + "_scale_inv";
    if (!bare && catalog.find(found.scales) == nullptr &&
        catalog.find(name + "_scale") != nullptr) {
      found.scales = name + "_scale";
      found.has_square_blocks = false;
    }
    return found;
  }
  if (bare) return std::nullopt;
  if (has_type(weight, DType::kU8)) return fp4_tensors(catalog, module, name, ".weight_scale_2");
  const std::string packed = module + ".weight_packed";
  if (weight == nullptr && has_type(catalog.find(packed), DType::kU8)) {
    BlockFloatTensors found = fp4_tensors(catalog, module, packed, ".weight_global_scale");
    found.is_reciprocal = true;
    return found;
  }
  return std::nullopt;
}

}  // namespace motley
