#include "io/convert/packed_rows.h"

#include <cstring>
#include <span>

#include "base/check.h"
#include "numeric/half.h"

namespace motley {

void store_value(float value, DType dtype, std::byte* out, int64_t index) {
  if (dtype == DType::kF32) {
    std::memcpy(out + index * 4, &value, 4);
    return;
  }
  MOTLEY_CHECK(dtype == DType::kBf16, "new checkpoints hold BF16 or F32");
  const Bf16 half = to_bf16(value);
  std::memcpy(out + index * 2, &half, 2);
}

void store_quantized_row(const MlxAffineFormat& format, DType scale_dtype,
                         const std::vector<float>& row, std::vector<uint8_t>* codes,
                         const PackedRows& out) {
  codes->resize(row.size());
  const auto group_size = static_cast<size_t>(format.group_size);
  for (size_t begin = 0; begin < row.size(); begin += group_size) {
    const MlxGroup group =
        mlx_quantize_group(std::span(row).subspan(begin, group_size), format.bits,
                           std::span(*codes).subspan(begin, group_size));
    const auto index = static_cast<int64_t>(begin / group_size);
    store_value(group.scale, scale_dtype, out.scales, index);
    store_value(group.bias, scale_dtype, out.biases, index);
  }
  mlx_pack_codes(*codes, format.bits, reinterpret_cast<uint8_t*>(out.values));
}

}  // namespace motley
