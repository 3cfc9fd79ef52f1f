#include "ops/cpu/linear_ops.h"

namespace motley {
namespace {

template <CpuIsa isa, NumericProfile profile>
void linear(Stream& stream, const ConstTensorView& x, RowCounts counts,
            std::span<const LinearTarget> targets) {
  run_linear(linear_kernels(isa), matrix_arithmetic(profile), stream, x, counts, targets);
}

template <CpuIsa isa, NumericProfile profile>
void experts(Stream& stream, const ConstTensorView& x, RowCounts counts, ExpertParams params,
             std::span<const ExpertWork> work, const TensorView& pair_out) {
  run_experts(linear_kernels(isa), matrix_arithmetic(profile), stream, x, counts, params, work,
              pair_out);
}

struct Functions {
  decltype(LinearOps::linear) linear_op;
  decltype(MoeOps::experts) experts_op;
};

template <NumericProfile profile>
Functions functions_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      break;
    case CpuIsa::kNeon:
      return {linear<CpuIsa::kNeon, profile>, experts<CpuIsa::kNeon, profile>};
    case CpuIsa::kAvx2:
      return {linear<CpuIsa::kAvx2, profile>, experts<CpuIsa::kAvx2, profile>};
    case CpuIsa::kAvx512:
      return {linear<CpuIsa::kAvx512, profile>, experts<CpuIsa::kAvx512, profile>};
    case CpuIsa::kAmx:
      return {linear<CpuIsa::kAmx, profile>, experts<CpuIsa::kAmx, profile>};
  }
  return {linear<CpuIsa::kPortable, profile>, experts<CpuIsa::kPortable, profile>};
}

Functions functions_of(CpuIsa isa, NumericProfile profile) {
  return profile == NumericProfile::kExact ? functions_of<NumericProfile::kExact>(isa)
                                           : functions_of<NumericProfile::kFast>(isa);
}

}  // namespace

LinearKernels linear_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAmx) return linear_kernels_amx();
  if (isa == CpuIsa::kAvx512) return linear_kernels_avx512();
  if (isa == CpuIsa::kAvx2) return linear_kernels_avx2();
#elif defined(__aarch64__)
  if (isa == CpuIsa::kNeon) return linear_kernels_neon();
#endif
  return linear_kernels_portable();
}

MatrixArithmetic matrix_arithmetic(NumericProfile profile) {
  if (profile == NumericProfile::kExact) return {{3, false}, {3, false}};
  return {{2, false}, {2, true}};
}

LinearOps cpu_linear_ops(CpuIsa isa, NumericProfile profile) {
  return {functions_of(isa, profile).linear_op, run_embed};
}

decltype(MoeOps::experts) cpu_experts(CpuIsa isa, NumericProfile profile) {
  return functions_of(isa, profile).experts_op;
}

}  // namespace motley
