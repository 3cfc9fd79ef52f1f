// The table of the AVX-512 matrix kernels, quantisation of activations and the expert activation.
// Needs F, BW, DQ, VL, VBMI, VNNI, BF16.
#include "ops/cpu/affine_avx512.h"

namespace motley {
namespace {

// From this many tokens on, unpacking the weights to a tile pays.
constexpr int64_t kPanelTokens = 4;

// The largest k <= 126 with magnitude * 2^k <= 127, 127 * 257 or 127 * 65793.
int shift_for(uint32_t magnitude_bits, int limbs) {
  const uint32_t largest = limbs == 1 ? 0x42FE0000u : limbs == 2 ? 0x46FEFE00u : 0x4AFEFEFEu;
  const int exponent = static_cast<int>(magnitude_bits >> 23);
  const bool above = (magnitude_bits & 0x7FFFFFu) > (largest & 0x7FFFFFu);
  const int shift = static_cast<int>(largest >> 23) - exponent - (above ? 1 : 0);
  return shift < 126 ? shift : 126;
}

float float_from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

float power_of_two(int exponent) {
  return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

uint32_t largest_magnitude(const float* x, int count) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < count; i += 16) {
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
  }
  return _mm512_reduce_max_epu32(largest);
}

// Stores the digits of 16 integers, two lanes of each half; out: the first limb, half 0.
void store_digits(__m512i values, int limbs, __m128i order, std::byte* out) {
  for (int limb = 0; limb < limbs; ++limb) {
    const __m128i digits = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(values), order);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), digits);
    _mm_storeh_pd(reinterpret_cast<double*>(out + 64), _mm_castsi128_pd(digits));
    const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(values, 24), 24);
    values = _mm512_srai_epi32(_mm512_sub_epi32(values, digit), 8);
    out += kPackedBlock;
  }
}

// The sums that E2M1 codes want (PackedLayout).
void store_integer_sums(const PackedLayout& layout, int64_t group, int32_t sum, int32_t low_sum,
                        std::byte* row) {
  auto* out = reinterpret_cast<int32_t*>(row + layout.sums_offset) + group;
  *out = 12 * (layout.limbs == 3 ? (sum - low_sum) / 256 : sum);
  if (layout.limbs == 3) out[(layout.sums_offset - layout.scales_offset) / 4] = 12 * low_sum;
}

void pack_group(const PackedLayout& layout, const float* x, int64_t group, std::byte* row) {
  const __m128i order = layout.nibble_order
                            ? _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
  const uint32_t largest = largest_magnitude(x, layout.group_size);
  const bool finite = largest < 0x7F800000u;
  const int shift = finite ? shift_for(largest, layout.limbs) : 0;
  const __m512 multiplier = _mm512_set1_ps(power_of_two(shift));
  const __mmask16 mask = finite ? 0xFFFF : 0;
  __m512i sum = _mm512_setzero_si512();
  __m512i low_sum = _mm512_setzero_si512();  // of the lowest limb
  for (int i = 0; i < layout.group_size; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), multiplier);
    const __m512i values = _mm512_cvtps_epi32(scaled);
    sum = _mm512_add_epi32(sum, values);
    low_sum = _mm512_add_epi32(low_sum, _mm512_srai_epi32(_mm512_slli_epi32(values, 24), 24));
    const int64_t element = group * layout.group_size + i;
    store_digits(
        values, layout.limbs, order,
        row + element / kPackedBlock * kPackedBlock * layout.limbs + element % kPackedBlock / 2);
  }
  const float scale = finite ? power_of_two(-shift) : float_from_bits(0x7FC00000u);
  reinterpret_cast<float*>(row + layout.scales_offset)[group] = scale;
  if (layout.e2m1) {
    return store_integer_sums(layout, group, _mm512_reduce_add_epi32(sum),
                              _mm512_reduce_add_epi32(low_sum), row);
  }
  reinterpret_cast<float*>(row + layout.sums_offset)[group] =
      static_cast<float>(_mm512_reduce_add_epi32(sum)) * scale;
}

void pack_groups(const PackedLayout& layout, const float* x, int64_t first, int64_t count,
                 std::byte* row) {
  for (int64_t i = 0; i < count; ++i) {
    pack_group(layout, x + i * layout.group_size, first + i, row);
  }
}

void affine_rows(const AffineRows& weights, const PackedLayout& layout, const PackedTokens& tokens,
                 std::byte* scratch) {
  if (tokens.count < kPanelTokens) return affine_dot_avx512(weights, layout, tokens);
  affine_panels_avx512(weights, layout, tokens, scratch);
}

// e^x for x in [-88, 88], within 2 units in the last place; NaN stays NaN.
__m512 exponential(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);  // ln 2 in two parts
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  // Taylor series: the remainder is below 2^-26 for |r| <= ln 2 / 2.
  __m512 sum = _mm512_set1_ps(1.0f / 5040);
  constexpr float kCoefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  for (const float coefficient : kCoefficients) {
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(coefficient));
  }
  return _mm512_scalef_ps(sum, n);
}

void silu_multiply(float* inout, const float* up, int64_t count, float limit) {
  const __m512 high = _mm512_set1_ps(limit);
  const __m512 low = _mm512_set1_ps(-limit);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = row_mask(count - i);
    // min and max return their second operand when one is NaN.
    const __m512 gate = _mm512_min_ps(high, _mm512_maskz_loadu_ps(mask, inout + i));
    const __m512 bounded =
        _mm512_max_ps(low, _mm512_min_ps(high, _mm512_maskz_loadu_ps(mask, up + i)));
    const __m512 x = _mm512_min_ps(
        _mm512_set1_ps(88.0f),
        _mm512_max_ps(_mm512_set1_ps(-88.0f), _mm512_sub_ps(_mm512_setzero_ps(), gate)));
    const __m512 silu = _mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), exponential(x)));
    _mm512_mask_storeu_ps(inout + i, mask, _mm512_mul_ps(silu, bounded));
  }
}

int64_t scratch_bytes(int64_t cols) {
  return affine_panel_scratch_avx512(cols);
}

}  // namespace

LinearKernels linear_kernels_avx512() {
  return {pack_groups, affine_rows, float_rows_avx512, silu_multiply, scratch_bytes};
}

}  // namespace motley
