// The AMX matrix kernels: tiles for many tokens of MLX weights, AVX-512 for the rest.
#include <immintrin.h>

#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

// Assembly instead of intrinsics: those take no template argument as a tile, and some compilers'
// do not say which memory they touch.
class Tiles {
 public:
  void configure(int a, int b, int depth_bytes) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<uint8_t>(tile < b ? 16 : depth_bytes / 4);
      config.row_bytes[tile] = static_cast<uint16_t>(tile < a || tile >= b ? 64 : depth_bytes);
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  void release() { asm volatile("tilerelease"); }
  template <int kTileNumber>
  void load(const void* data) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(data), "r"(kStride), "i"(kTileNumber),
                   "m"(*static_cast<const Bytes*>(data)));
  }
  template <int kTileNumber>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTileNumber));
  }
  template <int kTileNumber>
  void store(void* data) {
    asm volatile("tilestored %%tmm%c3, (%1,%2,1)"
                 : "=m"(*static_cast<Bytes*>(data))
                 : "r"(data), "r"(kStride), "i"(kTileNumber));
  }
  template <int c, int a, int b>
  void multiply_bytes() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }

 private:
  static constexpr int64_t kStride = 64;
  struct Bytes {
    char bytes[1024];
  };
};

}  // namespace
}  // namespace motley

#include "ops/cpu/bf16_amx_inl.h"

namespace motley {

LinearKernels linear_kernels_amx() {
  return tiled_kernels();
}

}  // namespace motley
