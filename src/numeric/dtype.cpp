#include "numeric/dtype.h"

#include <array>

#include "base/check.h"

namespace motley {
namespace {

struct DTypeFacts {
  DType dtype;
  int64_t bytes;
  std::string_view name;
};

constexpr std::array kFacts = {
    DTypeFacts{DType::kBool, 1, "BOOL"},      DTypeFacts{DType::kU8, 1, "U8"},
    DTypeFacts{DType::kI8, 1, "I8"},          DTypeFacts{DType::kU16, 2, "U16"},
    DTypeFacts{DType::kI16, 2, "I16"},        DTypeFacts{DType::kU32, 4, "U32"},
    DTypeFacts{DType::kI32, 4, "I32"},        DTypeFacts{DType::kU64, 8, "U64"},
    DTypeFacts{DType::kI64, 8, "I64"},        DTypeFacts{DType::kF8E4M3, 1, "F8_E4M3"},
    DTypeFacts{DType::kF8E5M2, 1, "F8_E5M2"}, DTypeFacts{DType::kF8E8M0, 1, "F8_E8M0"},
    DTypeFacts{DType::kF16, 2, "F16"},        DTypeFacts{DType::kBf16, 2, "BF16"},
    DTypeFacts{DType::kF32, 4, "F32"},        DTypeFacts{DType::kF64, 8, "F64"},
};

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  MOTLEY_CHECK(index < kFacts.size() && kFacts[index].dtype == dtype, "table order");
  return kFacts[index];
}

}  // namespace

int64_t dtype_bytes(DType dtype) {
  return facts(dtype).bytes;
}

std::string_view dtype_name(DType dtype) {
  return facts(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeFacts& entry : kFacts) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace motley
