// Element types as they appear in files, caches and activations.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF16,
  kBf16,
  kF32,
  kF64,
};

// Bytes of one element.
int64_t dtype_bytes(DType dtype);

// The spelling of safetensors: "BF16", "F32", "U32", "F8_E4M3", ...
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace motley
