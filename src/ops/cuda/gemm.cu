#include "ops/cuda/gemm.h"

#include <vector>

#include "ops/cuda/gemm_mma.cuh"
#include "ops/cuda/gemm_wgmma.cuh"
#include "ops/cuda/matvec.h"

namespace motley::cuda {
namespace {

template <typename Kernel>
void launch_kernel(CudaStream& stream, Kernel* kernel, const GemmCall& call, dim3 grid, int bytes) {
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "gemm");
  kernel<<<grid, kGemmThreads, bytes, stream.handle()>>>(call);
}

bool has_wgmma(const CudaStream& stream) {
  return stream.compute_capability() == 90;
}

// x_tiles: 128-row tiles of x per block, 2 only with wgmma. The sums of a row are the same in all.
template <int kBits>
void launch(CudaStream& stream, const GemmCall& call, dim3 grid, int x_tiles) {
  if (!has_wgmma(stream)) {
    return launch_kernel(stream, gemm_mma_kernel<kBits>, call, grid,
                         GemmStage<kBits, 1>::kSharedBytes);
  }
  if (x_tiles == 1) {
    return launch_kernel(stream, gemm_wgmma_kernel<kBits, 1>, call, grid,
                         GemmStage<kBits, 1>::kDeepSharedBytes);
  }
  launch_kernel(stream, gemm_wgmma_kernel<kBits, 2>, call, grid,
                GemmStage<kBits, 2>::kDeepSharedBytes);
}

void launch_format(CudaStream& stream, const WeightMatrix& weights, const GemmCall& call,
                   int64_t tiles, int x_tiles) {
  const dim3 grid(grid_of(weights.rows, kTileW), static_cast<unsigned>(tiles));
  const int bits = weights.format == WeightFormat::kBf16 ? kPlainBits : weights.affine.bits;
  switch (bits) {
    case 2:
      return launch<2>(stream, call, grid, x_tiles);
    case 3:
      return launch<3>(stream, call, grid, x_tiles);
    case 4:
      return launch<4>(stream, call, grid, x_tiles);
    case 5:
      return launch<5>(stream, call, grid, x_tiles);
    case 6:
      return launch<6>(stream, call, grid, x_tiles);
    case 8:
      return launch<8>(stream, call, grid, x_tiles);
    default:
      return launch<kPlainBits>(stream, call, grid, x_tiles);
  }
}

GemmItem item_of(const WeightMatrix& weights) {
  GemmItem item{};
  item.codes = reinterpret_cast<const uint8_t*>(weights.codes.data);
  item.scales = reinterpret_cast<const uint8_t*>(weights.scales.data);
  item.biases = reinterpret_cast<const uint8_t*>(weights.biases.data);
  return item;
}

GemmCall call_of(const WeightMatrix& weights, const PreparedRows& x, const TensorView& y) {
  GemmCall call{};
  call.x = x;
  call.y = reinterpret_cast<float*>(y.data);
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

void run_gemm(CudaStream& stream, const WeightMatrix& weights, const PreparedRows& x,
              const TensorView& y) {
  if (x.rows == 0 || weights.rows == 0) return;
  GemmCall call = call_of(weights, x, y);
  call.single = item_of(weights);
  call.single.count = static_cast<int32_t>(x.rows);
  const int x_tiles = has_wgmma(stream) && x.rows > kTileX ? 2 : 1;
  launch_format(stream, weights, call, divide_up(x.rows, kTileX * x_tiles), x_tiles);
  stream.check_launch("linear (tiles)");
}

void run_gemm_groups(CudaStream& stream, std::span<const GemmGroup> groups, const PreparedRows& x,
                     const TensorView& y) {
  std::vector<GemmItem> items;
  std::vector<GemmTile> tiles;
  for (const GemmGroup& group : groups) {
    for (int32_t first = 0; first < group.count; first += kTileX) {
      tiles.push_back({static_cast<int32_t>(items.size()), first});
    }
    GemmItem item = item_of(group.weights);
    item.x_ids = group.x_ids;
    item.out_ids = group.out_ids;
    item.first_x = group.first_x;
    item.first_out = group.first_out;
    item.count = group.count;
    items.push_back(item);
  }
  if (tiles.empty()) return;
  GemmCall call = call_of(groups[0].weights, x, y);
  call.items = stream.upload<GemmItem>(items);
  call.tiles = stream.upload<GemmTile>(tiles);
  launch_format(stream, groups[0].weights, call, static_cast<int64_t>(tiles.size()), 1);
  stream.check_launch("experts (tiles)");
}

}  // namespace motley::cuda
