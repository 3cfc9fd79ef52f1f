#include "engine/verify/verify_expected.h"

#include <fmt/format.h>

#include "engine/verify/label_check.h"

namespace motley {
namespace {

constexpr double kFastLossLimit = 0.005;
constexpr double kFastRowShare = 0.01;  // of rows whose greatest logit may differ
constexpr int kMaxRoutePasses = 4;

// Shapes that would read past the engine's outputs are refused before anything runs.
Status check_shapes(const ExpectedTensors& expected, const std::string& label,
                    const ModelSpec& spec) {
  const auto refuse = [&](const std::string& tensor, const std::string& why) {
    return invalid_argument(fmt::format("expected outputs: tensor {}.{} {}", label, tensor, why));
  };
  for (const std::string rest : {"ids", "greedy"}) {
    const ExpectedTensors::Ints* ints = expected.ints(label + "." + rest);
    if (ints == nullptr) continue;
    for (const int32_t token : ints->values) {
      if (token < 0 || token >= spec.vocab_size) {
        return refuse(rest,
                      fmt::format("names token {}, the vocabulary has {}", token, spec.vocab_size));
      }
    }
  }
  const auto prompt = static_cast<int64_t>(expected.ints(label + ".ids")->values.size());
  const auto rows_fit = [&](const std::vector<int64_t>& shape, int64_t width) {
    const int64_t rows = shape.size() == 2 ? shape[0] : 1;
    return !shape.empty() && shape.size() <= 2 && shape.back() == width && rows <= prompt;
  };
  for (const char* rest : {"logits", "mtp.logits"}) {
    const ExpectedTensors::Floats* floats = expected.floats(label + "." + rest);
    if (floats != nullptr && !rows_fit(floats->shape, spec.vocab_size)) {
      return refuse(rest, "has a shape that this model cannot give");
    }
  }
  if (const auto* argmax = expected.ints(label + ".argmax");
      argmax != nullptr && static_cast<int64_t>(argmax->values.size()) != prompt) {
    return refuse("argmax", "must have one entry per token");
  }
  if (const auto* losses = expected.floats(label + ".nll");
      losses != nullptr && static_cast<int64_t>(losses->values.size()) != prompt - 1) {
    return refuse("nll", "must have one entry per token but the first");
  }
  if (const auto* margins = expected.floats(label + ".greedy_margin")) {
    const auto* greedy = expected.ints(label + ".greedy");
    if (greedy == nullptr || greedy->values.size() != margins->values.size()) {
      return refuse("greedy_margin", "must match greedy");
    }
  }
  const std::vector<int> moe = moe_layers(spec);
  for (size_t i = 0; i < moe.size(); ++i) {
    const std::string rest = fmt::format("router.{}.experts", i);
    const auto* chosen = expected.ints(label + "." + rest);
    const auto& layer = spec.layers[static_cast<size_t>(moe[i])];
    const int width = std::get<MoeSpec>(layer.feed_forward).experts_per_token;
    if (chosen != nullptr && (chosen->shape.size() != 2 || !rows_fit(chosen->shape, width))) {
      return refuse(rest, "has a shape that this model cannot give");
    }
  }
  return Status::ok();
}

class ExpectedVerifier {
 public:
  ExpectedVerifier(Engine& engine, const ExpectedTensors& expected, const VerifyOptions& options)
      : engine_(engine), expected_(expected), options_(options) {}

  Result<VerifyReport> run() {
    const std::vector<std::string> labels = expected_.labels();
    for (const std::string& label : labels) {
      MOTLEY_RETURN_IF_ERROR(check_shapes(expected_, label, engine_.spec()));
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
    if (expected_.ints(label + ".router.0.experts") != nullptr) {
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
