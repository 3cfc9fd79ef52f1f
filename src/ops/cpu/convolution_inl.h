// Kernel of ops/convolution.h. Included after math_inl.h.
#pragma once

namespace motley {
namespace {

// The weights transposed to [kernel, channels], and the window's new contents.
int64_t convolution_scratch(int64_t channels, int64_t kernel) {
  return 2 * kernel * round_up_to_lanes(channels);
}

// weight [channels, kernel] to [kernel, padded].
template <int kKernel>
inline void transpose_weights(const float* __restrict weight, int64_t channels, int64_t kernel,
                              int64_t padded, float* __restrict transposed) {
  const int64_t taps = kKernel > 0 ? kKernel : kernel;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < taps; ++j) transposed[j * padded + c] = weight[c * taps + j];
  }
}

// All rows of the task; kKernel is the kernel, or 0 for any.
template <int kKernel>
inline void convolve(const ConvolutionTask& task, const float* weight, int64_t padded) {
  const int64_t taps = kKernel > 0 ? kKernel : task.kernel;
  for (int64_t t = 0; t < task.rows; ++t) {
    const float* const* inputs = task.row_scratch + t;
    float* y = task.y + t * task.y_stride;
    int64_t c = 0;
    for (; c + kLanes <= task.channels; c += kLanes) {
      Vec sum = zero();
      for (int64_t j = 0; j < taps; ++j) {
        sum = fma(load(weight + j * padded + c), load(inputs[j] + c), sum);
      }
      store(y + c, silu_vec(sum));
    }
    if (c == task.channels) continue;
    const int rest = static_cast<int>(task.channels - c);
    Vec sum = zero();
    for (int64_t j = 0; j < taps; ++j) {
      sum =
          fma(load_partial(weight + j * padded + c, rest), load_partial(inputs[j] + c, rest), sum);
    }
    store_partial(y + c, silu_vec(sum), rest);
  }
}

void convolution(const ConvolutionTask& task) {
  const int64_t padded = round_up_to_lanes(task.channels);
  const int64_t history = task.kernel - 1;
  const float** inputs = task.row_scratch;
  for (int64_t t = 0; t < history; ++t) inputs[t] = task.window + t * task.window_stride;
  for (int64_t t = 0; t < task.rows; ++t) inputs[history + t] = task.u + t * task.u_stride;
  float* weight = task.scratch;
  if (task.kernel == 4) {
    transpose_weights<4>(task.weight, task.channels, task.kernel, padded, weight);
    convolve<4>(task, weight, padded);
  } else {
    transpose_weights<0>(task.weight, task.channels, task.kernel, padded, weight);
    convolve<0>(task, weight, padded);
  }
  if (task.ring != nullptr) {
    for (int64_t t = 0; t < task.rows; ++t) {
      __builtin_memcpy(task.ring + t * task.ring_stride, inputs[history + t],
                       static_cast<size_t>(task.channels) * sizeof(float));
    }
    return;
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
