// Residual streams with hyper-connections.
#include <cmath>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

struct Weights {
  std::vector<Twin> storage;  // fn, base, scale
  std::vector<std::vector<float>> host;
  HyperWeights device;
  HyperWeights reference;
};

Weights random_hyper_weights(Harness& h, const HyperParams& params, int64_t dim) {
  Weights weights;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  weights.storage.push_back(h.random_twin({params.coefficients(), dim}, scale));
  weights.storage.push_back(h.random_twin({params.coefficients()}));
  weights.storage.push_back(h.random_twin({3}));
  for (const Twin& twin : weights.storage) {
    weights.host.emplace_back(twin.values.begin(), twin.values.end());
  }
  const auto host_view = [&](size_t i) {
    return view_of(static_cast<const float*>(weights.host[i].data()), weights.storage[i].shape);
  };
  weights.device = {weights.storage[0].device, weights.storage[1].device,
                    weights.storage[2].device};
  weights.reference = {host_view(0), host_view(1), host_view(2)};
  return weights;
}

// A first row of `all` equals the row alone, bit for bit.
void check_alone(Harness& h, const HyperOps& ops, const Twin& streams, const Weights& weights,
                 const HyperParams& params, const Twin& x) {
  const Twin coefficients = h.output_twin({1, params.coefficients()});
  const Twin alone = h.output_twin({1, x.shape[1]});
  const int64_t last = x.shape[0] - 1;
  ops.mix(h.device(), streams.device.slice_rows(last, 1), weights.device, params,
          coefficients.device, alone.device);
  h.check_true(h.fetch(alone.device) == h.fetch(x.device.slice_rows(last, 1)));
}

void mix_case(Harness& h, const HyperOps& ops, int64_t rows) {
  HyperParams params;
  params.streams = h.random().pick({1, 2, 4, 4, 5, 8});
  params.sinkhorn_iterations = static_cast<int>(h.random().integer(1, 20));
  const int64_t hidden = h.random().pick({12, 64, 1000, 2048, 333});
  const Weights weights = random_hyper_weights(h, params, params.streams * hidden);
  Twin streams = h.random_twin({rows, params.streams, hidden});
  Twin coefficients = h.output_twin({rows, params.coefficients()});
  Twin x = h.output_twin({rows, hidden});
  ops.mix(h.device(), streams.device, weights.device, params, coefficients.device, x.device);
  h.reference().hyper.mix(h.host(), streams.reference, weights.reference, params,
                          coefficients.reference, x.reference);
  h.check(coefficients, 2e-5);
  h.check(x, 2e-5);
  check_alone(h, ops, streams, weights, params, x);
  Twin y = h.random_twin({rows, hidden});
  ops.merge(h.device(), y.device, coefficients.device, streams.device);
  h.reference().hyper.merge(h.host(), y.reference, coefficients.reference, streams.reference);
  h.check(streams, 2e-5);
  Twin mean = h.output_twin({rows, hidden});
  ops.mean(h.device(), streams.device, mean.device);
  h.reference().hyper.mean(h.host(), streams.reference, mean.reference);
  h.check(mean, 2e-5);
  ops.spread(h.device(), y.device, streams.device);
  h.reference().hyper.spread(h.host(), y.reference, streams.reference);
  h.check(streams, 0.0);
  h.end_case();
}

}  // namespace

void run_hyper_cases(Harness& h, int cases) {
  const OpTable table = h.backend().table(NumericProfile::kExact);
  h.begin("hyper", "1-40 rows, 1-8 streams");
  for (int i = 0; i < cases; ++i) mix_case(h, table.hyper, h.random().integer(1, 40));
  h.begin("hyper", "520-600 rows");
  mix_case(h, table.hyper, h.random().integer(520, 600));
}

}  // namespace motley::ops_device
