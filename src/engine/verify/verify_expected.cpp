#include "engine/verify/verify_expected.h"

#include <fmt/format.h>

#include "engine/verify/expected_shapes.h"
#include "engine/verify/label_check.h"

namespace motley {
namespace {

constexpr double kFastLossLimit = 0.005;
constexpr double kFastRowShare = 0.01;  // of rows whose greatest logit may differ
constexpr int kMaxRoutePasses = 4;

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
    RouteTable routes;
    if (expected_.has(label, ExpectedKind::kRouterExperts)) {
      MOTLEY_RETURN_IF_ERROR(reference_routes(label, request, &routes));
      request.forced_routes = &routes;
    }
    MOTLEY_ASSIGN_OR_RETURN(const SequenceTrace trace, trace_sequence(engine_, request));
    report_.routed_rows += routes.size();
    report_.excused_rows += routes.near_ties();
    check_label(expected_, label, engine_.spec(), trace, &report_);
    routes_[label] = std::move(routes);
    return Status::ok();
  }

  // Choices and gaps of the float64 reference, following the expected file in near ties.
  Status reference_routes(const std::string& label, const TraceRequest& exact, RouteTable* routes) {
    if (reference_ == nullptr) {
      EngineOptions numerics = engine_.options();
      numerics.reference = true;
      MOTLEY_ASSIGN_OR_RETURN(reference_, engine_.with_numerics(numerics));
    }
    const std::vector<int> moe = moe_layers(engine_.spec());
    TraceRequest request = exact;
    request.layers = false;
    for (int pass = 0; pass < kMaxRoutePasses; ++pass) {
      const RouteTable forced = std::move(*routes);
      request.forced_routes = pass > 0 ? &forced : nullptr;
      MOTLEY_ASSIGN_OR_RETURN(SequenceTrace trace, trace_sequence(*reference_, request));
      *routes = std::move(trace.routes);
      const auto prompt = static_cast<int64_t>(request.prompt.size());
      if (adopt_expected_routes(expected_, label, moe, prompt, routes) == 0) break;
    }
    return Status::ok();
  }

  // First as it is. A model whose routing is decided by less than the cache resolves may then be
  // off though its arithmetic is right; a second pass takes such choices from the reference.
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
      request.forced_routes = force ? &routes_.at(label) : nullptr;
      request.forced_below = kFastNearTie;
      MOTLEY_ASSIGN_OR_RETURN(const SequenceTrace trace, trace_sequence(fast, request));
      report_.fast_forced_rows += trace.forced_rows;
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
  std::map<std::string, RouteTable> routes_;  // the reference's, by label
};

}  // namespace

Result<VerifyReport> verify_expected(Engine& engine, const ExpectedTensors& expected,
                                     const VerifyOptions& options) {
  return ExpectedVerifier(engine, expected, options).run();
}

}  // namespace motley
