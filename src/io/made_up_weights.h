// Weights with the formats and shapes of a model's, but made-up values in memory of their own.
//
// A probe of speed computes with them: a few tensors of a model whose files are not read. Values
// are small and differ from row to row, so that sums stay finite and a router chooses evenly.
// Ownership: as LoadedWeights, whose checkpoint comes along for its files. Thread rule: one thread
// calls; filling uses the context's threads. Errors: those of load_model() about what the files
// declare; kResourceExhausted without memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/context.h"
#include "base/status.h"
#include "io/loader.h"

namespace motley {

struct MadeUpTensor {
  TensorHandle tensor;
  int64_t most_rows = 0;    // of a matrix; 0: all of them
  int64_t most_copies = 0;  // of kExperts: how many experts there are; 0: all of them
};

// Only `tensors` have weights; asking for another one, or for more than there is, is a bug.
Result<LoadedWeights> make_up_weights(Context& context, const ModelSpec& spec,
                                      const QuantizationConfig& quantization, Checkpoint checkpoint,
                                      std::span<const MadeUpTensor> tensors);

}  // namespace motley
