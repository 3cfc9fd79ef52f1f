// Timings at the shapes of other models: the delta rule with a decay per channel (32 heads of 128)
// and residual streams (four of 4096).
#include <string>

#include "ops_device/bench.h"

namespace motley::ops_device {

void bench_channel_delta(Bench& bench, int32_t rows, bool chunked) {
  const std::string name = std::string("channel_delta ") + (chunked ? "chunked" : "recurrent") +
                           ", rows " + std::to_string(rows);
  if (!bench.wants(name)) return;
  const ChannelDeltaShape shape{32, 128, 128};
  const int32_t sequences = chunked ? 1 : rows;
  std::vector<ChannelDeltaSegment> segments;
  int32_t held = 0;
  const ChannelDeltaCarry carry{&held, bench.tensor({kDeltaBlock, shape.key_dim()}),
                                bench.tensor({kDeltaBlock, shape.value_dim()}),
                                bench.tensor({1, shape.key_dim()})};
  for (int32_t s = 0; s < sequences; ++s) {
    const RowRole role = chunked ? RowRole::kPrefill : RowRole::kDecode;
    segments.push_back({{role, s, chunked ? rows : 1, {}},
                        bench.tensor({shape.heads, 128, 128}),
                        chunked ? carry : ChannelDeltaCarry{}});
  }
  const ChannelDeltaArgs args{shape,
                              DecayGate::kBounded,
                              -5.0f,
                              bench.tensor({rows, shape.conv_dim()}),
                              bench.tensor({rows, shape.heads}),
                              bench.tensor({rows, shape.key_dim()}),
                              bench.tensor({shape.heads}),
                              bench.tensor({shape.key_dim()}),
                              segments,
                              bench.tensor({rows, shape.value_dim()})};
  const double state_bytes = 8.0 * static_cast<double>(sequences * shape.value_dim()) * 128;
  const double row_floats =
      static_cast<double>(rows * (shape.conv_dim() + shape.key_dim() + shape.value_dim()));
  // Per token and head: three products with the state.
  const double flops = 6.0 * rows * static_cast<double>(shape.value_dim()) * 128;
  const ChannelDeltaOps& ops = bench.ops().channel_delta;
  const auto op = chunked ? ops.chunked : ops.recurrent;
  bench.measure(name, state_bytes + 4.0 * row_floats, flops, 4,
                [&](int) { op(bench.stream(), args); });
  bench.release();
}

void bench_hyper(Bench& bench, int64_t rows) {
  if (!bench.wants("hyper")) return;
  constexpr int64_t kHidden = 4096;
  const HyperParams params;
  const int64_t dim = params.streams * kHidden;
  const TensorView streams = bench.tensor({rows, params.streams, kHidden});
  const TensorView coefficients = bench.tensor({rows, params.coefficients()});
  const TensorView x = bench.tensor({rows, kHidden});
  const HyperWeights weights{bench.tensor({params.coefficients(), dim}),
                             bench.tensor({params.coefficients()}), bench.tensor({3})};
  const std::string suffix = ", rows " + std::to_string(rows);
  const double stream_bytes = 4.0 * static_cast<double>(rows * dim);
  const double x_bytes = 4.0 * static_cast<double>(rows * kHidden);
  const double weight_bytes = 4.0 * static_cast<double>(params.coefficients() * dim);
  bench.measure("hyper mix" + suffix, stream_bytes + x_bytes + weight_bytes,
                2.0 * static_cast<double>(rows * dim * params.coefficients()), 8, [&](int) {
                  bench.ops().hyper.mix(bench.stream(), streams, weights, params, coefficients, x);
                });
  bench.measure("hyper merge" + suffix, 2 * stream_bytes + x_bytes, 0, 8,
                [&](int) { bench.ops().hyper.merge(bench.stream(), x, coefficients, streams); });
  bench.release();
}

}  // namespace motley::ops_device
