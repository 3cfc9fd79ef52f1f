#include "ops/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/cuda/gemm_mma.cuh"
#include "ops/cuda/gemm_wgmma.h"
#include "ops/cuda/matvec.h"

namespace motley::cuda {
namespace {

// F16 scales take the portable kernel: a choice at run time costs the other one its overlap.
bool takes_wgmma(const CudaStream& stream, const WeightMatrix& weights) {
  const bool half_scales =
      weights.format == WeightFormat::kMlxAffine && weights.scale_dtype == DType::kF16;
  return stream.compute_capability() == 90 && !half_scales;
}

int code_bits(const WeightMatrix& weights) {
  return weights.format == WeightFormat::kBf16 ? kPlainBits : weights.affine.bits;
}

// How many times `unit` rows the next tile of a list with `left` rows has, and the largest tile.
int tile_units(const WeightMatrix& weights, bool wgmma, int64_t left) {
  if (!wgmma) return 1;
  return wgmma_tile_units(code_bits(weights), divide_up(left, kWgmmaUnit));
}

int unit_rows(bool wgmma) {
  return wgmma ? kWgmmaUnit : kTileX;
}

template <int kBits>
void launch(CudaStream& stream, const GemmCall& call, bool wgmma, int units) {
  if (wgmma) return launch_gemm_wgmma<kBits>(stream, call, units);
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
  const bool wgmma = takes_wgmma(stream, weights);
  switch (code_bits(weights)) {
    case 2:
      return launch<2>(stream, call, wgmma, units);
    case 3:
      return launch<3>(stream, call, wgmma, units);
    case 4:
      return launch<4>(stream, call, wgmma, units);
    case 5:
      return launch<5>(stream, call, wgmma, units);
    case 6:
      return launch<6>(stream, call, wgmma, units);
    case 8:
      return launch<8>(stream, call, wgmma, units);
    default:
      return launch<kPlainBits>(stream, call, wgmma, units);
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
  call.w_tiles = static_cast<int>(divide_up(weights.rows, kTileW));
  call.cols = static_cast<int>(weights.cols);
  const int group_size = weights.affine.group_size;
  call.group_log2 = group_size == 32 ? 5 : group_size == 64 ? 6 : 7;
  call.group_count = static_cast<int>(weights.cols / group_size);
  call.scales_are_f16 = weights.scale_dtype == DType::kF16;
  return call;
}

void launch_groups(CudaStream& stream, std::span<const GemmGroup> groups, GemmCall call) {
  const bool wgmma = takes_wgmma(stream, groups[0].weights);
  std::vector<GemmItem> items;
  std::array<std::vector<GemmTile>, kWgmmaMaxUnits + 1> tiles;  // by units
  for (const GemmGroup& group : groups) {
    for (int32_t first = 0; first < group.count;) {
      const int units = tile_units(group.weights, wgmma, group.count - first);
      tiles[static_cast<size_t>(units)].push_back({static_cast<int32_t>(items.size()), first});
      first += units * unit_rows(wgmma);
    }
    GemmItem item = item_of(group.weights, group.y);
    if (call.hidden != nullptr) {
      const GemmItem up = item_of(group.up, {});
      item.up_codes = up.codes;
      item.up_scales = up.scales;
      item.up_biases = up.biases;
    }
    item.out_ids = group.out_ids;
    item.first_x = group.first_x;
    item.first_out = group.first_out;
    item.count = group.count;
    items.push_back(item);
  }
  call.items = stream.upload<GemmItem>(items);
  for (size_t units = tiles.size() - 1; units > 0; --units) {
    if (tiles[units].empty()) continue;
    call.tiles = stream.upload<GemmTile>(tiles[units]);
    call.x_tiles = static_cast<int>(tiles[units].size());
    launch_format(stream, groups[0].weights, call, static_cast<int>(units));
  }
  stream.check_launch("experts (tiles)");
}

}  // namespace

bool gemm_takes(const WeightMatrix& weights) {
  return matvec_takes(weights);
}

RowOrder gemm_order(const CudaStream& stream, const WeightMatrix& weights) {
  return takes_wgmma(stream, weights) ? RowOrder::kTileMajor : RowOrder::kChunkMajor;
}

void run_gemm(CudaStream& stream, const WeightMatrix& weights, const PreparedRows& x,
              const TensorView& y) {
  if (x.rows == 0 || weights.rows == 0) return;
  GemmCall call = call_of(weights, x, y);
  call.single = item_of(weights, y);
  const bool wgmma = takes_wgmma(stream, weights);
  // As many of the largest tiles as there are, then one that fits the rest.
  for (int64_t done = 0; done < x.rows;) {
    const int64_t left = x.rows - done;
    const int units = tile_units(weights, wgmma, left);
    const int64_t tile_rows = int64_t{units} * unit_rows(wgmma);
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
  if (groups.empty()) return;
  launch_groups(stream, groups, call_of(groups[0].weights, x, groups[0].y));
}

bool gemm_takes_gated(const CudaStream& stream, const WeightMatrix& weights) {
  return takes_wgmma(stream, weights);
}

PreparedRows run_gemm_gated(CudaStream& stream, std::span<const GemmGroup> groups,
                            const PreparedRows& x, int64_t rows, SwigluParams swiglu) {
  PreparedRows hidden;
  hidden.rows = rows;
  hidden.padded_cols = divide_up(groups[0].weights.rows, kColumnPad) * kColumnPad;
  hidden.piece_stride = rows * hidden.padded_cols;
  auto* pieces =
      stream.scratch().allocate<__nv_bfloat16>(hidden.piece_stride + kTileReadAhead * kTileK);
  hidden.pieces = pieces;
  GemmCall call = call_of(groups[0].weights, x, {});
  call.w_tiles = static_cast<int>(hidden.padded_cols / kTileK);
  call.hidden = pieces;
  call.hidden_rows = rows;
  call.limit = swiglu.limit;
  launch_groups(stream, groups, call);
  return hidden;
}

}  // namespace motley::cuda
