// The AMX matrix kernels: tiles for many tokens of MLX weights, AVX-512 for the rest.
#include <immintrin.h>

#include "ops/cpu/linear_kernels.h"

namespace motley {
namespace {

// Tiles 0 to 2: the sums of each limb; 6: codes; 7: x.
class Tiles {
 public:
  void configure(int tokens, int bytes) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 3; ++tile) set(config, tile, tokens, 64);
    set(config, 6, bytes / 4, 64);
    set(config, 7, tokens, bytes);
    // The intrinsics of some compilers do not say how much they read: keep the stores before them.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  void release() { _tile_release(); }
  void load_codes(const uint8_t* data) { _tile_loadd(6, data, 64); }
  void load_x(const std::byte* data) { _tile_loadd(7, data, 64); }
  void clear(int limb) {
    if (limb == 0) _tile_zero(0);
    if (limb == 1) _tile_zero(1);
    if (limb == 2) _tile_zero(2);
  }
  void multiply(int limb) {
    if (limb == 0) _tile_dpbsud(0, 7, 6);
    if (limb == 1) _tile_dpbsud(1, 7, 6);
    if (limb == 2) _tile_dpbsud(2, 7, 6);
  }
  void store(int limb, int32_t* sums) {
    if (limb == 0) _tile_stored(0, sums, 64);
    if (limb == 1) _tile_stored(1, sums, 64);
    if (limb == 2) _tile_stored(2, sums, 64);
  }

 private:
  template <typename Config>
  static void set(Config& config, int tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
};

}  // namespace
}  // namespace motley

#include "ops/cpu/affine_amx_inl.h"

namespace motley {

LinearKernels linear_kernels_amx() {
  LinearKernels kernels = linear_kernels_avx512();
  kernels.affine_rows = affine_rows_tiled;
  kernels.scratch_bytes = scratch_bytes_tiled;
  return kernels;
}

}  // namespace motley
