// Holds any model against the float64 reference, layer by layer: each layer of both gets the
// engine's own input, so the error shown is that layer's alone. Runs the prefill path and the
// decode path. Choices of experts and keys are the engine's in both, so that arithmetic is compared
// and not a near tie.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace motley {

struct LayerError {
  std::string layer;   // "0 (gated delta)", "head", ...
  std::string path;    // "prefill" or "decode"
  double largest = 0;  // largest difference over the largest value
  double cosine = 1;   // of all values of the layer's output
  bool passed = false;
};

struct LayerReport {
  std::string numerics;
  std::vector<LayerError> layers;
  double limit = 0;

  bool passed() const;
  std::string table() const;
  std::string json() const;
};

struct LayerVerifyOptions {
  int64_t prefill_tokens = 24;
  int64_t decode_tokens = 4;
  uint64_t seed = 1;
  std::function<void(const std::string& stage)> progress;
};

// Largest relative error of one layer that counts as right: float32 rounding through a layer in
// exact, bfloat16-like rounding of activations in fast.
double layer_limit(NumericProfile profile);

Result<LayerReport> verify_layers(Engine& engine, const LayerVerifyOptions& options);

}  // namespace motley
