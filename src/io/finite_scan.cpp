#include "io/finite_scan.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace motley {
namespace {

// One lane of 16 or 32 bits, repeated over a 64-bit word. An element is not finite when all bits
// of its exponent are set; then adding the exponent's lowest bit carries into the sign position.
struct LaneMasks {
  uint64_t exponent;
  uint64_t lowest;
  uint64_t sign;
};

LaneMasks masks_of(DType dtype) {
  constexpr uint64_t kEvery16 = 0x0001000100010001;
  constexpr uint64_t kEvery32 = 0x0000000100000001;
  switch (dtype) {
    case DType::kBf16:
      return {kEvery16 * 0x7F80, kEvery16 * 0x0080, kEvery16 * 0x8000};
    case DType::kF16:
      return {kEvery16 * 0x7C00, kEvery16 * 0x0400, kEvery16 * 0x8000};
    default:
      MOTLEY_CHECK(dtype == DType::kF32, "only BF16, F16 and F32 are scanned");
      return {kEvery32 * 0x7F800000, kEvery32 * 0x00800000, kEvery32 * 0x80000000};
  }
}

}  // namespace

bool all_finite(std::span<const std::byte> elements, DType dtype) {
  const LaneMasks masks = masks_of(dtype);
  const auto suspects = [&](uint64_t word) {
    return ((word & masks.exponent) + masks.lowest) & masks.sign;
  };
  uint64_t found = 0;
  size_t at = 0;
  for (; at + 8 <= elements.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, elements.data() + at, 8);
    found |= suspects(word);
  }
  if (at < elements.size()) {
    uint64_t word = 0;  // the missing elements read as zero
    std::memcpy(&word, elements.data() + at, elements.size() - at);
    found |= suspects(word);
  }
  return found == 0;
}

}  // namespace motley
