#include "model/step_context.h"

namespace motley {

Status all_reduce(StepContext& context, const TensorView& partial) {
  context.stream.synchronize();
  const auto elements = static_cast<size_t>(partial.shape.elements());
  if (partial.dtype == DType::kF64) {
    return context.collective.all_reduce_sum(std::span(partial.as<double>(), elements));
  }
  return context.collective.all_reduce_sum(std::span(partial.as<float>(), elements));
}

}  // namespace motley
