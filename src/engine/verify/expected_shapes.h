// Holds the shapes and the whole numbers of a file of expected outputs against a model, before
// anything runs: what passes reads nothing outside the engine's outputs.
#pragma once

#include <string>

#include "engine/verify/expected_tensors.h"
#include "spec/model_spec.h"

namespace motley {

// Errors: kInvalidArgument, naming the tensor. `context_length` in tokens.
Status check_expected_shapes(const ExpectedTensors& expected, const std::string& label,
                             const ModelSpec& spec, int64_t context_length);

}  // namespace motley
