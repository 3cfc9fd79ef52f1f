// The AMX path with its tile unit in plain C++, for tests on machines without AMX.
#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

class Tiles {
 public:
  void configure(int tokens, int bytes) {
    tokens_ = tokens;
    bytes_ = bytes;
  }
  void release() {}
  void load_codes(const uint8_t* data) {
    __builtin_memcpy(codes_, data, static_cast<size_t>(bytes_) / 4 * 64);
  }
  void load_x(const std::byte* data) {
    for (int t = 0; t < tokens_; ++t) {
      __builtin_memcpy(x_[t], data + 64 * t, static_cast<size_t>(bytes_));
    }
  }
  void clear(int limb) { __builtin_memset(sums_[limb], 0, sizeof(sums_[limb])); }
  void multiply(int limb) {
    for (int t = 0; t < tokens_; ++t) {
      for (int row = 0; row < 16; ++row) {
        for (int k = 0; k < bytes_; ++k) {
          sums_[limb][t][row] += int32_t{x_[t][k]} * int32_t{codes_[k / 4][4 * row + k % 4]};
        }
      }
    }
  }
  void store(int limb, int32_t* sums) const {
    __builtin_memcpy(sums, sums_[limb], static_cast<size_t>(tokens_) * 64);
  }

 private:
  int tokens_ = 0;
  int bytes_ = 0;
  uint8_t codes_[16][64] = {};
  int8_t x_[16][64] = {};
  int32_t sums_[3][16][16] = {};
};

}  // namespace
}  // namespace motley

#include "ops/cpu/affine_amx_inl.h"

namespace motley {

LinearKernels linear_kernels_tiles_emulated() {
  LinearKernels kernels = linear_kernels_avx512();
  kernels.affine_rows = affine_rows_tiled;
  kernels.scratch_bytes = scratch_bytes_tiled;
  return kernels;
}

}  // namespace motley
