#include "ops/cuda/attend_tiles.cuh"

#include <vector>

#include "ops/cuda/attend_wgmma.cuh"
#include "ops/cuda/attention_kernels.h"

namespace motley::cuda {
namespace {

template <int kDim, int kWarps, int kKeys>
void launch(CudaStream& stream, const TilesCall& call, int kv_heads) {
  using Shape = TilesShape<kDim, kWarps, kKeys>;
  auto* kernel = attend_tiles_kernel<kDim, kWarps, kKeys>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   Shape::kSharedBytes),
              "attend");
  const dim3 grid(grid_of(call.rows, 16 * kWarps / call.group), static_cast<unsigned>(kv_heads));
  kernel<<<grid, Shape::kThreads, Shape::kSharedBytes, stream.handle()>>>(call);
  stream.check_launch("attend (tiles)");
}

template <int kDim>
void launch_wgmma(CudaStream& stream, const TilesCall& call, int kv_heads) {
  constexpr int kBytes = AttendShape<kDim>::kSharedBytes;
  auto* kernel = attend_wgmma_kernel<kDim>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "attend");
  const dim3 grid(grid_of(call.rows, kAttendRows / call.group), static_cast<unsigned>(kv_heads));
  kernel<<<grid, kAttendThreads, kBytes, stream.handle()>>>(call);
  stream.check_launch("attend (tiles)");
}

// The large tile needs the shared memory of data-centre parts.
template <int kDim>
void launch_dim(CudaStream& stream, const TilesCall& call, int kv_heads) {
  const int capability = stream.compute_capability();
  if (capability == 90) return launch_wgmma<kDim>(stream, call, kv_heads);
  if (capability == 100) return launch<kDim, 8, 64>(stream, call, kv_heads);
  launch<kDim, 4, 32>(stream, call, kv_heads);
}

}  // namespace

bool attend_tiles_takes(const AttentionArgs& args, const AttentionSegment& segment) {
  const int64_t dim = args.q.shape[2];
  const int64_t group = args.q.shape[1] / args.kv_heads;
  const bool known_dim = dim == 64 || dim == 128 || dim == 256;
  return known_dim && group <= 16 && 16 % group == 0 &&
         segment.cache.layout.dtype == DType::kBf16 && args.result.out.row_stride % 2 == 0;
}

void attend_tiles(CudaStream& stream, const AttentionArgs& args, const AttentionSegment& segment) {
  const RowSegment& rows = segment.rows;
  if (rows.rows == 0) return;
  std::vector<int32_t> visible(static_cast<size_t>(rows.rows));
  for (int32_t i = 0; i < rows.rows; ++i) {
    visible[static_cast<size_t>(i)] =
        static_cast<int32_t>(segment.cache.shard.tokens_below(rows.first_position.value + i + 1));
  }
  constexpr float kLog2E = 1.44269504088896341f;
  TilesCall call{};
  call.q = reinterpret_cast<const float*>(args.q.data);
  call.q_stride = args.q.row_stride;
  call.out = reinterpret_cast<float*>(args.result.out.data);
  call.out_stride = args.result.out.row_stride;
  call.lse = reinterpret_cast<float*>(args.result.lse.values.data);
  call.lse_stride = args.result.lse.values.row_stride;
  call.pages = stream.upload(std::span<std::byte* const>(segment.cache.pages));
  call.visible = stream.upload<int32_t>(visible);
  call.first_row = rows.first_row;
  call.rows = rows.rows;
  call.group = static_cast<int>(args.q.shape[1] / args.kv_heads);
  call.tokens_per_page = segment.cache.layout.tokens_per_page;
  call.scale_log2 = args.scale * kLog2E;
  const int64_t dim = args.q.shape[2];
  if (dim == 64) return launch_dim<64>(stream, call, args.kv_heads);
  if (dim == 128) return launch_dim<128>(stream, call, args.kv_heads);
  launch_dim<256>(stream, call, args.kv_heads);
}

}  // namespace motley::cuda
