// Kernel of ops/convolution.h. Included after math_inl.h.
#pragma once

namespace motley {
namespace {

// The weights transposed to [kernel, channels], and the window's new contents.
int64_t convolution_scratch(int64_t channels, int64_t kernel) {
  return 2 * kernel * round_up_to_lanes(channels);
}

void convolution(const ConvolutionTask& task) {
  const int64_t padded = round_up_to_lanes(task.channels);
  const int64_t history = task.kernel - 1;
  float* weight = task.scratch;
  for (int64_t c = 0; c < task.channels; ++c) {
    for (int64_t j = 0; j < task.kernel; ++j) {
      weight[j * padded + c] = task.weight[c * task.kernel + j];
    }
  }
  const float** inputs = task.row_scratch;
  for (int64_t t = 0; t < history; ++t) inputs[t] = task.window + t * task.window_stride;
  for (int64_t t = 0; t < task.rows; ++t) inputs[history + t] = task.u + t * task.u_stride;

  for (int64_t t = 0; t < task.rows; ++t) {
    float* y = task.y + t * task.y_stride;
    for (int64_t c = 0; c < task.channels; c += kLanes) {
      const int64_t n = task.channels - c;
      Vec sum = zero();
      for (int64_t j = 0; j < task.kernel; ++j) {
        sum = fma(load_upto(weight + j * padded + c, n), load_upto(inputs[t + j] + c, n), sum);
      }
      store_upto(y + c, silu_vec(sum), n);
    }
  }
  // Rows of the new window may come from the old one: copy out, then in.
  float* kept = task.scratch + task.kernel * padded;
  for (int64_t t = 0; t < history; ++t) {
    __builtin_memcpy(kept + t * padded, inputs[task.rows + t],
                     static_cast<size_t>(task.channels) * sizeof(float));
  }
  for (int64_t t = 0; t < history; ++t) {
    __builtin_memcpy(task.window + t * task.window_stride, kept + t * padded,
                     static_cast<size_t>(task.channels) * sizeof(float));
  }
}

}  // namespace
}  // namespace motley
