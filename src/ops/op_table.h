// A backend is a table of ops. Blocks call ops through the table and know no backend.
//
// The float64 reference is one more backend with activation dtype kF64, so a whole model can run
// in it (R5). A missing op is a start-up error that names it, never a silent fall-back.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "numeric/dtype.h"
#include "ops/attention.h"
#include "ops/convolution.h"
#include "ops/gated_delta.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"

namespace motley {

enum class NumericProfile : uint8_t { kExact, kFast };
std::string_view numeric_profile_name(NumericProfile profile);

struct OpTable {
  std::string name;  // "reference", "cpu/avx512", ... for reports
  NumericProfile profile = NumericProfile::kExact;
  DType activation_dtype = DType::kF32;  // kF64 for the reference
  MemorySpace space = MemorySpace::kHost;
  LinearOps linear;
  NormOps norm;
  ConvolutionOps convolution;
  GatedDeltaOps gated_delta;
  AttentionOps attention;
  MoeOps moe;
};

// kUnsupported with the names of all missing ops.
Status check_complete(const OpTable& table);

// The float64 reference backend (ops/reference).
OpTable reference_op_table();

}  // namespace motley
