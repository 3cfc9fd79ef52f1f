// Matrices of quantised GGUF blocks: what a module views, and whether their scales are numbers.
// Ownership: views into the checkpoint. Errors: kCorrupt, naming file and tensor.
#pragma once

#include <cstdint>

#include "base/context.h"
#include "base/status.h"
#include "io/checkpoint.h"
#include "io/module_table.h"
#include "tensor/weight_matrix.h"

namespace motley {

// The blocks of `tensor` as a matrix, of the first expert of a stack.
WeightMatrix gguf_matrix(const CheckpointTensor& tensor, int64_t rows, int64_t cols);

// Whether no block of `matrix` has a scale that is NaN or infinite; true for other formats.
bool gguf_scales_are_finite(const WeightMatrix& matrix);

// The same for all modules of a table, on all threads of the context. With `skip_experts` routed
// experts are left out.
Status check_gguf_scales(Context& context, const Checkpoint& checkpoint, const ModuleTable& table,
                         bool skip_experts);

// "q4_k", ... or "" for another format.
std::string gguf_format_name(const WeightMatrix& matrix);

}  // namespace motley
