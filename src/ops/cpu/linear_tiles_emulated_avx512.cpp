// The AMX path with its tile unit in plain C++, for tests on machines without AMX.
#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

class Tiles {
 public:
  void configure(int a, int b, int depth_bytes) {
    a_ = a;
    b_ = b;
    depth_bytes_ = depth_bytes;
  }
  void release() {}
  template <int kTileNumber>
  void load(const void* data) {
    const auto* rows = static_cast<const uint8_t*>(data);
    const bool is_weights = kTileNumber >= a_ && kTileNumber < b_;
    const int count = kTileNumber < b_ ? 16 : depth_bytes_ / 4;
    const auto bytes = static_cast<size_t>(is_weights ? depth_bytes_ : 64);
    for (int row = 0; row < count; ++row) {
      __builtin_memcpy(tiles_[kTileNumber][row], rows + 64 * row, bytes);
    }
  }
  template <int kTileNumber>
  void zero() {
    __builtin_memset(tiles_[kTileNumber], 0, sizeof(tiles_[kTileNumber]));
  }
  template <int kTileNumber>
  void store(void* data) {
    __builtin_memcpy(data, tiles_[kTileNumber], sizeof(tiles_[kTileNumber]));
  }
  template <int c, int a, int b>
  void multiply_bytes() {
    for (int row = 0; row < 16; ++row) {
      for (int token = 0; token < 16; ++token) {
        int32_t sum = word<int32_t>(c, row, token);
        for (int k = 0; k < depth_bytes_; ++k) {
          const auto x = static_cast<int8_t>(tiles_[b][k / 4][4 * token + k % 4]);
          sum += int32_t{tiles_[a][row][k]} * int32_t{x};
        }
        __builtin_memcpy(&tiles_[c][row][4 * token], &sum, sizeof(sum));
      }
    }
  }
  // Even and odd products in chains of their own; numbers too small for float32's normal range
  // count as zero.
  template <int c, int a, int b>
  void multiply_bf16() {
    for (int row = 0; row < 16; ++row) {
      for (int token = 0; token < 16; ++token) {
        float chains[2] = {};
        for (int k = 0; k < depth_bytes_ / 2; ++k) {
          const float w = bfloat16(&tiles_[a][row][2 * k]);
          const float x = bfloat16(&tiles_[b][k / 2][4 * token + k % 2 * 2]);
          chains[k % 2] = flush(__builtin_fmaf(w, x, chains[k % 2]));
        }
        const float sum = flush(word<float>(c, row, token) + flush(chains[0] + chains[1]));
        __builtin_memcpy(&tiles_[c][row][4 * token], &sum, sizeof(sum));
      }
    }
  }

 private:
  static float flush(float value) {
    return __builtin_fabsf(value) < 0x1p-126f ? __builtin_copysignf(0.0f, value) : value;
  }
  static float bfloat16(const uint8_t* data) {
    uint16_t bits;
    __builtin_memcpy(&bits, data, sizeof(bits));
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    __builtin_memcpy(&value, &wide, sizeof(value));
    return flush(value);
  }
  template <typename T>
  T word(int tile, int row, int column) const {
    T value;
    __builtin_memcpy(&value, &tiles_[tile][row][4 * column], sizeof(value));
    return value;
  }

  int a_ = 0;
  int b_ = 0;
  int depth_bytes_ = 0;
  uint8_t tiles_[8][16][64] = {};
};

}  // namespace
}  // namespace motley

#include "ops/cpu/bf16_amx_inl.h"

namespace motley {

LinearKernels linear_kernels_tiles_emulated() {
  return tiled_kernels();
}

}  // namespace motley
