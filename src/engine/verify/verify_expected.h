// Recomputes every tensor of a file of reference outputs and compares (names: docs/verify.md).
//
// Limits: exact profile 2e-4 of a tensor's largest value; choices equal unless the deciding gap is
// under 1e-5 (forced, counted, at most 0.5 % of rows); greedy tokens, teacher-forced, equal where
// the margin exceeds 1e-3; losses within 1e-3 each. Fast profile: mean loss within 0.005, greatest
// logit equal on 99 % of rows.
#pragma once

#include "engine/engine.h"
#include "engine/verify/expected_tensors.h"
#include "engine/verify/verify_report.h"

namespace motley {

struct VerifyOptions {
  int64_t prefill_chunk = 512;
  bool fast_pass = true;  // also check the fast profile against its own limits
  std::function<void(const std::string& stage)> progress;
};

// `engine` has the exact profile and, when the file has draft tensors, draft state.
Result<VerifyReport> verify_expected(Engine& engine, const ExpectedTensors& expected,
                                     const VerifyOptions& options);

}  // namespace motley
