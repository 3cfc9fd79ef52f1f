// How a layer's mixer and feed-forward meet the residual: added to it (plain), or through a
// hyper-connection that mixes the streams of a token and is written back to all of them.
#pragma once

#include <optional>

#include "io/loader.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

// The residual of so many rows: [rows, hidden], or [rows, streams, hidden].
Shape residual_shape(const ResidualSpec& spec, int64_t rows, int64_t hidden_size);

class ResidualSite {
 public:
  ResidualSite(ResidualKind kind, const HyperConnectionSpec& hyper, const ResidualSpec& spec,
               const LoadedWeights& weights);

  struct Input {
    ConstTensorView x;        // [rows, hidden]: what the norm takes
    TensorView coefficients;  // scratch; empty for a plain residual
  };
  // Views are of scratch or of `residual` itself, valid until the caller's scope ends.
  Input read(StepContext& context, const TensorView& residual) const;
  // Brings in y = f(norm(x)), [rows, hidden]; residual is updated in place.
  void write(StepContext& context, const Input& input, const ConstTensorView& y,
             const TensorView& residual) const;

 private:
  HyperParams params_;
  std::optional<HyperWeights> weights_;  // of a hyper-connection
};

}  // namespace motley
