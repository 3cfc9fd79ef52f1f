// Compares one label's expected tensors with traces of the engine. Their shapes and numbers must
// have passed check_expected_shapes.
#pragma once

#include <string>
#include <vector>

#include "engine/verify/expected_tensors.h"
#include "engine/verify/sequence_trace.h"
#include "engine/verify/verify_report.h"
#include "spec/model_spec.h"

namespace motley {

inline constexpr double kValueLimit = 2e-4;  // of the tensor's largest value
inline constexpr double kLossLimit = 1e-3;   // nats, per token
inline constexpr double kNearMargin = 1e-3;  // between the two greatest logits

// Layers with routed experts, in order: the I of LABEL.router.I.
std::vector<int> moe_layers(const ModelSpec& spec);

// Layers with an indexer of their own, in order: the I of LABEL.indexer.I.
std::vector<int> indexer_layers(const ModelSpec& spec);

// What must be traced to answer the tensors that `expected` has for `label`.
TraceRequest request_for(const ExpectedTensors& expected, const std::string& label,
                         int64_t prefill_chunk);

// Puts the expected choices in place of the tables' near ties, and the file's gaps where smaller.
// Returns how many choices changed.
int64_t adopt_expected_choices(const ExpectedTensors& expected, const std::string& label,
                               const ModelSpec& spec, int64_t prompt_tokens, ChoiceTables* tables);

// Exact profile: one report row per tensor of the label.
void check_label(const ExpectedTensors& expected, const std::string& label, const ModelSpec& spec,
                 const SequenceTrace& trace, VerifyReport* report);

// Losses and greatest logits of a fast run against the expected ones.
struct FastTotals {
  double expected_loss = 0;
  double loss = 0;
  int64_t losses = 0;
  int64_t rows = 0;
  int64_t rows_equal = 0;

  double loss_error() const;  // of the mean, nats
  double row_error() const;   // share of rows whose greatest logit differs
};
void add_fast_label(const ExpectedTensors& expected, const std::string& label,
                    const SequenceTrace& trace, FastTotals* totals);

// -log softmax(logits)[token].
double token_loss(std::span<const float> logits, int32_t token);

}  // namespace motley
