#include "model/residual.h"

namespace motley {

Shape residual_shape(const ResidualSpec& spec, int64_t rows, int64_t hidden_size) {
  if (spec.streams == 1) return {rows, hidden_size};
  return {rows, spec.streams, hidden_size};
}

ResidualSite::ResidualSite(ResidualKind kind, const HyperConnectionSpec& hyper,
                           const ResidualSpec& spec, const LoadedWeights& weights)
    : params_{.streams = spec.streams,
              .sinkhorn_iterations = spec.sinkhorn_iterations,
              .norm_epsilon = spec.norm_epsilon,
              .epsilon = spec.epsilon,
              .post_scale = spec.post_scale} {
  if (kind == ResidualKind::kPlain) return;
  weights_ = HyperWeights{.fn = weights.table(hyper.fn),
                          .base = weights.vector(hyper.base),
                          .scale = weights.vector(hyper.scale)};
}

ResidualSite::Input ResidualSite::read(StepContext& context, const TensorView& residual) const {
  if (!weights_.has_value()) return {residual, {}};
  const int64_t rows = residual.rows();
  const TensorView coefficients = context.scratch({rows, params_.coefficients()});
  const TensorView x = context.scratch({rows, residual.cols() / params_.streams});
  context.ops.hyper.mix(context.stream, residual, *weights_, params_, coefficients, x);
  return {x, coefficients};
}

void ResidualSite::write(StepContext& context, const Input& input, const ConstTensorView& y,
                         const TensorView& residual) const {
  if (!weights_.has_value()) return context.ops.norm.add(context.stream, y, residual);
  context.ops.hyper.merge(context.stream, y, input.coefficients, residual);
}

}  // namespace motley
