// The matrix products of the CPU backend.
#pragma once

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/linear_kernels.h"
#include "ops/op_table.h"

namespace motley {

// isa must be available.
LinearOps cpu_linear_ops(CpuIsa isa, NumericProfile profile);
decltype(MoeOps::experts) cpu_experts(CpuIsa isa, NumericProfile profile);

// How rows of one role are multiplied.
struct RoleArithmetic {
  int limbs = 3;      // signed bytes that hold an activation against MLX weights (linear_kernels.h)
  bool fast = false;  // against float weights, activations may be rounded to bfloat16
};
struct MatrixArithmetic {
  RoleArithmetic decode;
  RoleArithmetic prefill;
};
MatrixArithmetic matrix_arithmetic(NumericProfile profile);

// The kernels of one instruction set; isa must be one this program was built with.
LinearKernels linear_kernels(CpuIsa isa);

// The drivers behind both, for any table of kernels.
void run_linear(const LinearKernels& kernels, const MatrixArithmetic& arithmetic, Stream& stream,
                const ConstTensorView& x, RowCounts counts, std::span<const LinearTarget> targets);
void run_experts(const LinearKernels& kernels, const MatrixArithmetic& arithmetic, Stream& stream,
                 const ConstTensorView& x, RowCounts counts, ExpertParams params,
                 std::span<const ExpertWork> work, const TensorView& pair_out);
void run_embed(Stream& stream, const WeightMatrix& table, std::span<const int32_t> ids,
               const TensorView& out);

}  // namespace motley
