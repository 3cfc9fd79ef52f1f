#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

constexpr int64_t kChannelsPerTask = 256;
// Below this many outputs all tasks run on the caller's thread.
constexpr int64_t kInlineOutputs = 4096;

}  // namespace

void cpu_causal_convolution(const CpuKernels& kernels, Stream& stream, const ConstTensorView& u,
                            const ConstTensorView& weight,
                            std::span<const ConvolutionSegment> segments, const TensorView& y) {
  const int64_t channels = weight.shape[0];
  const int64_t kernel = weight.shape[1];
  MOTLEY_CHECK(u.cols() == channels && y.cols() == channels, "one weight row per channel");
  int64_t longest = 0;
  int64_t rows = 0;
  for (const ConvolutionSegment& segment : segments) {
    longest = std::max<int64_t>(longest, segment.rows.rows);
    rows += segment.rows.rows;
  }
  const Arena::Scope scope(stream.scratch());
  const int64_t workers = stream.threads().size();
  const int64_t scratch_floats = kernels.convolution_scratch(kChannelsPerTask, kernel);
  const int64_t row_pointers = longest + kernel;
  auto* scratch = stream.scratch().allocate<float>(workers * scratch_floats);
  auto** row_scratch = stream.scratch().allocate<const float*>(workers * row_pointers);

  const int64_t blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const int64_t tasks = static_cast<int64_t>(segments.size()) * blocks;
  const int64_t grain = rows * channels <= kInlineOutputs ? std::max<int64_t>(tasks, 1) : 1;
  stream.threads().parallel_for(tasks, grain, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ConvolutionSegment& segment = segments[static_cast<size_t>(i / blocks)];
      if (segment.rows.rows == 0) continue;
      const int64_t first = i % blocks * kChannelsPerTask;
      ConvolutionTask task;
      task.u = u.row<float>(segment.rows.first_row) + first;
      task.u_stride = u.row_stride;
      task.weight = weight.as<float>() + first * kernel;
      task.window = segment.window.as<float>() + first;
      task.window_stride = segment.window.row_stride;
      if (!segment.ring.is_empty()) {
        MOTLEY_CHECK(segment.ring.rows() >= segment.rows.rows, "the ring holds every row");
        task.ring = segment.ring.as<float>() + first;
        task.ring_stride = segment.ring.row_stride;
      }
      task.y = y.row<float>(segment.rows.first_row) + first;
      task.y_stride = y.row_stride;
      task.rows = segment.rows.rows;
      task.channels = std::min(kChannelsPerTask, channels - first);
      task.kernel = kernel;
      task.scratch = scratch + worker * scratch_floats;
      task.row_scratch = row_scratch + worker * row_pointers;
      kernels.convolution(task);
    }
  });
}

void cpu_commit_window(const CpuKernels&, Stream&, const ConvolutionSegment& segment) {
  const int64_t rows = segment.rows.rows;
  const int64_t history = segment.window.rows();
  // In ascending order, so that no row is overwritten before it is read.
  for (int64_t t = 0; t < history; ++t) {
    const int64_t from = t + rows;
    const float* source =
        from < history ? segment.window.row<float>(from) : segment.ring.row<float>(from - history);
    if (rows > 0) std::copy_n(source, segment.window.cols(), segment.window.row<float>(t));
  }
}

}  // namespace motley
