#include "ops/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/cuda/gemm_mma.cuh"
#include "ops/cuda/gemm_wgmma.h"
#include "ops/cuda/matvec.h"

namespace motley::cuda {
namespace {

bool has_wgmma(const CudaStream& stream) {
  return stream.compute_capability() == 90;
}

// How many times `unit` rows the next tile of a list with `left` rows has, and the largest tile.
int tile_units(const CudaStream& stream, int64_t left) {
  if (!has_wgmma(stream)) return 1;
  return wgmma_tile_units(divide_up(left, kWgmmaUnit));
}

int unit_rows(const CudaStream& stream) {
  return has_wgmma(stream) ? kWgmmaUnit : kTileX;
}

template <int kBits>
void launch(CudaStream& stream, const GemmCall& call, int units) {
  if (has_wgmma(stream)) return launch_gemm_wgmma<kBits>(stream, call, units);
  constexpr int kBytes = MmaStage<kBits>::kSharedBytes;
  auto* kernel = gemm_mma_kernel<kBits>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "gemm");
  const dim3 grid(grid_of(call.rows, kTileW), static_cast<unsigned>(call.x_tiles));
  kernel<<<grid, kMmaThreads, kBytes, stream.handle()>>>(call);
}

// Every tile of `call` has `units` units.
void launch_format(CudaStream& stream, const WeightMatrix& weights, const GemmCall& call,
                   int units) {
  const int bits = weights.format == WeightFormat::kBf16 ? kPlainBits : weights.affine.bits;
  switch (bits) {
    case 2:
      return launch<2>(stream, call, units);
    case 3:
      return launch<3>(stream, call, units);
    case 4:
      return launch<4>(stream, call, units);
    case 5:
      return launch<5>(stream, call, units);
    case 6:
      return launch<6>(stream, call, units);
    case 8:
      return launch<8>(stream, call, units);
    default:
      return launch<kPlainBits>(stream, call, units);
  }
}

GemmItem item_of(const WeightMatrix& weights, const TensorView& y) {
  GemmItem item{};
  item.codes = reinterpret_cast<const uint8_t*>(weights.codes.data);
  item.scales = reinterpret_cast<const uint8_t*>(weights.scales.data);
  item.biases = reinterpret_cast<const uint8_t*>(weights.biases.data);
  item.y = reinterpret_cast<float*>(y.data);
  return item;
}

GemmCall call_of(const WeightMatrix& weights, const PreparedRows& x, const TensorView& y) {
  GemmCall call{};
  call.x = x;
  call.y_stride = y.row_stride;
  call.code_stride = weights.codes.row_bytes;
  call.scale_stride = weights.scales.row_bytes;
  call.rows = static_cast<int>(weights.rows);
  call.cols = static_cast<int>(weights.cols);
  const int group_size = weights.affine.group_size;
  call.group_log2 = group_size == 32 ? 5 : group_size == 64 ? 6 : 7;
  call.group_count = static_cast<int>(weights.cols / group_size);
  call.scales_are_f16 = weights.scale_dtype == DType::kF16;
  return call;
}

}  // namespace

bool gemm_takes(const WeightMatrix& weights) {
  return matvec_takes(weights);
}

RowOrder gemm_order(const CudaStream& stream) {
  return has_wgmma(stream) ? RowOrder::kTileMajor : RowOrder::kChunkMajor;
}

void run_gemm(CudaStream& stream, const WeightMatrix& weights, const PreparedRows& x,
              const TensorView& y) {
  if (x.rows == 0 || weights.rows == 0) return;
  GemmCall call = call_of(weights, x, y);
  call.single = item_of(weights, y);
  // As many of the largest tiles as there are, then one that fits the rest.
  for (int64_t done = 0; done < x.rows;) {
    const int64_t left = x.rows - done;
    const int units = tile_units(stream, left);
    const int64_t tile_rows = int64_t{units} * unit_rows(stream);
    call.x_tiles = static_cast<int>(std::max<int64_t>(left / tile_rows, 1));
    const int64_t rows = std::min(left, call.x_tiles * tile_rows);
    call.single.first_x = static_cast<int32_t>(done);
    call.single.first_out = static_cast<int32_t>(done);
    call.single.count = static_cast<int32_t>(rows);
    launch_format(stream, weights, call, units);
    done += rows;
  }
  stream.check_launch("linear (tiles)");
}

void run_gemm_groups(CudaStream& stream, std::span<const GemmGroup> groups, const PreparedRows& x) {
  std::vector<GemmItem> items;
  std::array<std::vector<GemmTile>, kWgmmaMaxUnits + 1> tiles;  // by units
  for (const GemmGroup& group : groups) {
    for (int32_t first = 0; first < group.count;) {
      const int units = tile_units(stream, group.count - first);
      tiles[static_cast<size_t>(units)].push_back({static_cast<int32_t>(items.size()), first});
      first += units * unit_rows(stream);
    }
    GemmItem item = item_of(group.weights, group.y);
    item.out_ids = group.out_ids;
    item.first_x = group.first_x;
    item.first_out = group.first_out;
    item.count = group.count;
    items.push_back(item);
  }
  if (items.empty()) return;
  GemmCall call = call_of(groups[0].weights, x, groups[0].y);
  call.items = stream.upload<GemmItem>(items);
  for (size_t units = tiles.size() - 1; units > 0; --units) {
    if (tiles[units].empty()) continue;
    call.tiles = stream.upload<GemmTile>(tiles[units]);
    call.x_tiles = static_cast<int>(tiles[units].size());
    launch_format(stream, groups[0].weights, call, static_cast<int>(units));
  }
  stream.check_launch("experts (tiles)");
}

}  // namespace motley::cuda
