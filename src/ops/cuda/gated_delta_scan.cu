// The fast profile of both delta rules over blocks: rounds of preparation and scan.
#include <algorithm>
#include <vector>

#include "ops/cuda/delta_scan.cuh"

namespace motley::cuda {

template void launch_delta_scan<false>(CudaStream&, const DeltaCall&, const DeltaBlocks&, unsigned);

namespace {

constexpr int64_t kScratchBytes = int64_t{256} << 20;

void run_round(CudaStream& stream, DeltaCall call, std::span<const DeltaSegment> segments,
               int64_t block_count) {
  Arena::Scope scope(stream.scratch());
  call.segments = stream.upload(segments);
  call.segment_count = static_cast<int>(segments.size());
  DeltaBlocks data{};
  data.keys = stream.scratch().allocate<DeltaKeys>(block_count * call.shape.key_heads);
  data.heads = stream.scratch().allocate<DeltaHead>(block_count * call.shape.value_heads);
  const auto count = static_cast<unsigned>(segments.size());
  if (call.by_channel) {
    data.folded = stream.scratch().allocate<DeltaFolded>(block_count * call.shape.value_heads);
    launch_channel_prepare(stream, call, data, static_cast<int>(block_count));
    launch_delta_scan<true>(stream, call, data, count);
  } else {
    launch_delta_prepare(stream, call, data, static_cast<int>(block_count));
    launch_delta_scan<false>(stream, call, data, count);
  }
}

__global__ void fill_kernel(Rows rows, int64_t cols, float value) {
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col < cols) rows.row(blockIdx.y)[col] = value;
}

}  // namespace

void fill_delta_rows(CudaStream& stream, const TensorView& view, int64_t rows, float value) {
  constexpr int kThreads = 256;
  if (rows == 0) return;
  const dim3 grid(grid_of(view.cols(), kThreads), static_cast<unsigned>(rows));
  fill_kernel<<<grid, kThreads, 0, stream.handle()>>>(rows_of(view), view.cols(), value);
  stream.check_launch("delta rule, chunked");
}

ConstRows copy_delta_rows(CudaStream& stream, const TensorView& view, int64_t rows) {
  const int64_t cols = view.cols();
  auto* copy = stream.scratch().allocate<float>(rows * cols);
  stream.note(
      cudaMemcpy2DAsync(copy, static_cast<size_t>(cols) * sizeof(float), view.data,
                        static_cast<size_t>(view.row_stride) * sizeof(float),
                        static_cast<size_t>(cols) * sizeof(float), static_cast<size_t>(rows),
                        cudaMemcpyDeviceToDevice, stream.handle()),
      "delta rule, chunked");
  return {copy, cols};
}

void run_delta_scan(CudaStream& stream, DeltaCall call, std::span<const DeltaSegment> segments) {
  const size_t head_bytes = sizeof(DeltaHead) + (call.by_channel ? sizeof(DeltaFolded) : 0);
  const int64_t block_bytes = call.shape.key_heads * static_cast<int64_t>(sizeof(DeltaKeys)) +
                              call.shape.value_heads * static_cast<int64_t>(head_bytes);
  const int64_t limit = std::max<int64_t>(kScratchBytes / block_bytes, 1);
  std::vector<DeltaSegment> left(segments.begin(), segments.end());
  while (true) {
    std::vector<DeltaSegment> round;
    int64_t used = 0;
    for (DeltaSegment& segment : left) {
      const int64_t blocks = std::min<int64_t>(delta_blocks(segment), limit - used);
      if (segment.rows == 0 || blocks == 0) continue;
      DeltaSegment piece = segment;
      piece.first_block = static_cast<int32_t>(used);
      piece.rows =
          std::min(segment.rows, static_cast<int32_t>(blocks * kDeltaBlock) - segment.held);
      round.push_back(piece);
      segment.first_row += piece.rows;
      segment.rows -= piece.rows;
      segment.held = 0;
      used += blocks;
    }
    if (round.empty()) return;
    run_round(stream, call, round, used);
  }
}

}  // namespace motley::cuda
