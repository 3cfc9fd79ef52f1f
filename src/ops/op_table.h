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
#include "ops/channel_delta.h"
#include "ops/convolution.h"
#include "ops/gated_delta.h"
#include "ops/hyper_connection.h"
#include "ops/index.h"
#include "ops/index_pool.h"
#include "ops/latent_attention.h"
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
  ChannelDeltaOps channel_delta;
  HyperOps hyper;
  IndexPoolOps index_pool;
  AttentionOps attention;
  LatentOps latent;
  IndexOps index;
  MoeOps moe;
  bool swiglu_limit = false;  // silu_multiply and experts take a limit
};

// Groups that only some models call; a backend may leave them out.
struct OpNeeds {
  bool channel_delta = false;
  bool hyper = false;
  bool index_pool = false;
  bool swiglu_limit = false;
  bool rollback = false;  // tentative rows and their commit: drafts are verified
  bool latent = false;    // with the ops of norm.h that only such models call
  bool index = false;
  bool sigmoid_routing = false;

  static OpNeeds all() { return {true, true, true, true, true, true, true, true}; }
};

// kUnsupported with the names of all missing ops: those that every model calls, and `needs`.
Status check_complete(const OpTable& table, const OpNeeds& needs);

// The float64 reference backend (ops/reference).
OpTable reference_op_table();

}  // namespace motley
