#include <immintrin.h>

#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kRowsPerTile = 16;
constexpr int kBytesPerRow = 64;
constexpr int kProducts = 4;  // tiles 0 to 3 accumulate, 4 and 5 hold x, 6 and 7 hold w

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t columns_bytes[16] = {};
  uint8_t rows[16] = {};
};

void configure_tiles() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.columns_bytes[tile] = kBytesPerRow;
    config.rows[tile] = kRowsPerTile;
  }
  alignas(64) uint8_t ones[kRowsPerTile * kBytesPerRow];
  for (uint8_t& byte : ones) byte = 1;
  // The intrinsics of some compilers do not say how much they read: without this the stores above
  // are dropped as dead and the tiles stay unconfigured.
  asm volatile("" : : "r"(&config), "r"(ones) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, kBytesPerRow);
  _tile_loadd(5, ones, kBytesPerRow);
  _tile_loadd(6, ones, kBytesPerRow);
  _tile_loadd(7, ones, kBytesPerRow);
}

float first_result() {
  alignas(64) int32_t sums[kRowsPerTile * kBytesPerRow / 4];
  _tile_stored(0, sums, kBytesPerRow);
  _tile_release();
  return static_cast<float>(sums[0]);
}

float run_int8(int64_t rounds) {
  configure_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  return first_result();
}

float run_bfloat16(int64_t rounds) {
  configure_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return first_result();
}

}  // namespace

PeakKernels peak_kernels_amx() {
  return {{{"tdpbusd", "int8", kProducts * 16 * 16 * 64, run_int8},
           {"tdpbf16ps", "bfloat16", kProducts * 16 * 16 * 32, run_bfloat16}}};
}

}  // namespace motley
