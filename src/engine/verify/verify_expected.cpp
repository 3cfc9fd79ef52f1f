#include "engine/verify/verify_expected.h"

#include <fmt/format.h>

#include "engine/verify/expected_shapes.h"
#include "engine/verify/label_check.h"

namespace motley {
namespace {

constexpr double kFastLossLimit = 0.005;
constexpr double kFastRowShare = 0.01;  // of rows whose greatest logit may differ
constexpr int kMaxChoicePasses = 4;

class ExpectedVerifier {
 public:
  ExpectedVerifier(Engine& engine, const ExpectedTensors& expected, const VerifyOptions& options)
      : engine_(engine), expected_(expected), options_(options) {}

  Result<VerifyReport> run() {
    const std::vector<std::string> labels = expected_.labels();
    for (const std::string& label : labels) {
      MOTLEY_RETURN_IF_ERROR(
          check_expected_shapes(expected_, label, engine_.spec(), engine_.context_length()));
    }
    for (const std::string& label : labels) {
      tell("exact " + label);
      MOTLEY_RETURN_IF_ERROR(check_exact(label));
    }
    if (options_.fast_pass) MOTLEY_RETURN_IF_ERROR(check_fast(labels));
    return std::move(report_);
  }

 private:
  void tell(const std::string& stage) const {
    if (options_.progress) options_.progress(stage);
  }

  Status check_exact(const std::string& label) {
    TraceRequest request = request_for(expected_, label, options_.prefill_chunk);
    ChoiceTables choices;
    if (expected_.has(label, ExpectedKind::kRouterExperts) ||
        expected_.has(label, ExpectedKind::kIndexerSelected)) {
      MOTLEY_RETURN_IF_ERROR(reference_choices(label, request, &choices));
      request.forced = &choices;
    }
    MOTLEY_ASSIGN_OR_RETURN(const SequenceTrace trace, trace_sequence(engine_, request));
    for (const ChoiceTable* table : {&choices.routes, &choices.keys}) {
      report_.routed_rows += table->size();
      report_.excused_rows += table->near_ties();
    }
    check_label(expected_, label, engine_.spec(), trace, &report_);
    choices_[label] = std::move(choices);
    return Status::ok();
  }

  // Choices and gaps of the float64 reference, following the expected file in near ties.
  Status reference_choices(const std::string& label, const TraceRequest& exact,
                           ChoiceTables* choices) {
    if (reference_ == nullptr) {
      EngineOptions numerics = engine_.options();
      numerics.reference = true;
      MOTLEY_ASSIGN_OR_RETURN(reference_, engine_.with_numerics(numerics));
    }
    TraceRequest request = exact;
    request.layers = false;
    for (int pass = 0; pass < kMaxChoicePasses; ++pass) {
      const ChoiceTables forced = std::move(*choices);
      request.forced = pass > 0 ? &forced : nullptr;
      MOTLEY_ASSIGN_OR_RETURN(SequenceTrace trace, trace_sequence(*reference_, request));
      *choices = std::move(trace.choices);
      const auto prompt = static_cast<int64_t>(request.prompt.size());
      if (adopt_expected_choices(expected_, label, engine_.spec(), prompt, choices) == 0) break;
    }
    return Status::ok();
  }

  // First as it is. A model whose choices are decided by less than the cache resolves may then be
  // off though its arithmetic is right; a second pass takes such choices from the reference: of
  // keys all, for they are always among many (docs/decisions/0017-fast-keys.md).
  Status check_fast(const std::vector<std::string>& labels) {
    EngineOptions numerics = engine_.options();
    numerics.profile = NumericProfile::kFast;
    numerics.cache_dtype.reset();
    MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> fast, engine_.with_numerics(numerics));
    MOTLEY_ASSIGN_OR_RETURN(FastTotals totals, run_fast(*fast, labels, false));
    const bool on_its_own =
        totals.loss_error() <= kFastLossLimit && totals.row_error() <= kFastRowShare;
    if (!on_its_own && report_.routed_rows > 0) {
      report_.fast_alone = {{totals.loss_error(), totals.row_error()}};
      MOTLEY_ASSIGN_OR_RETURN(totals, run_fast(*fast, labels, true));
    }
    if (totals.losses > 0) {
      add_fast_row("mean loss", totals.losses, totals.loss_error(), kFastLossLimit);
    }
    if (totals.rows > 0) {
      add_fast_row("greatest logit differs", totals.rows, totals.row_error(), kFastRowShare);
    }
    return Status::ok();
  }

  Result<FastTotals> run_fast(Engine& fast, const std::vector<std::string>& labels, bool force) {
    FastTotals totals;
    for (const std::string& label : labels) {
      tell("fast " + label);
      TraceRequest request = request_for(expected_, label, options_.prefill_chunk);
      request.layers = false;
      request.draft_steps = 0;
      request.forced = force ? &choices_.at(label) : nullptr;
      const bool has_indexers = !indexer_layers(engine_.spec()).empty();
      request.forced_routes_below = has_indexers ? kFastNearTieWithKeys : kFastNearTie;
      request.forced_keys_below = kAnyGap;
      MOTLEY_ASSIGN_OR_RETURN(const SequenceTrace trace, trace_sequence(fast, request));
      report_.fast_forced_rows += trace.forced_rows;
      report_.fast_forced_keys += trace.forced_keys;
      add_fast_label(expected_, label, trace, &totals);
    }
    return totals;
  }

  void add_fast_row(const std::string& what, int64_t compared, double error, double limit) {
    const bool passed = error <= limit;
    report_.rows.push_back({.profile = "fast",
                            .tensor = what,
                            .compared = compared,
                            .error = error,
                            .limit = limit,
                            .excused = report_.fast_forced_rows,
                            .passed = passed,
                            .first_off = passed ? "" : "over all rows"});
  }

  Engine& engine_;
  const ExpectedTensors& expected_;
  const VerifyOptions& options_;
  std::unique_ptr<Engine> reference_;
  VerifyReport report_;
  std::map<std::string, ChoiceTables> choices_;  // the reference's, by label
};

}  // namespace

Result<VerifyReport> verify_expected(Engine& engine, const ExpectedTensors& expected,
                                     const VerifyOptions& options) {
  return ExpectedVerifier(engine, expected, options).run();
}

}  // namespace motley
