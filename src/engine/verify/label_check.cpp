#include "engine/verify/label_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace motley {
namespace {

using Floats = ExpectedTensors::Floats;
using Ints = ExpectedTensors::Ints;

class LabelChecker {
 public:
  LabelChecker(const ExpectedTensors& expected, std::string label, const ModelSpec& spec,
               const SequenceTrace& trace, VerifyReport* report)
      : expected_(expected),
        label_(std::move(label)),
        spec_(spec),
        trace_(trace),
        report_(report),
        prompt_(static_cast<int64_t>(expected.ints(label_ + ".ids")->values.size())) {}

  void run() {
    for (const std::string& name : expected_.names()) {
      const std::optional<ExpectedName> parts = parse_expected_name(name);
      if (parts.has_value() && parts->label == label_) check(name, *parts);
    }
  }

 private:
  void check(const std::string& name, const ExpectedName& parts) {
    switch (parts.kind) {
      case ExpectedKind::kLogits:
        return compare_last_rows(name, *expected_.floats(name), trace_.logits);
      case ExpectedKind::kArgmax:
        return compare_choices(name, trace_.logits, ".argmax_margin");
      case ExpectedKind::kLayerOut:
        return compare_last_rows(name, *expected_.floats(name), trace_.layers[parts.index]);
      case ExpectedKind::kRouterExperts:
        return compare_routes(name, *expected_.ints(name), parts.index);
      case ExpectedKind::kDraftToken:
        return add(name, 1, trace_.next_token == expected_.ints(name)->values[0] ? 0 : 1, 0,
                   "the token");
      case ExpectedKind::kDraftLogits:
        return compare_last_rows(name, *expected_.floats(name), trace_.draft_logits);
      case ExpectedKind::kDraftChainLogits:
        return compare_last_rows(name, *expected_.floats(name), trace_.chain_logits);
      case ExpectedKind::kGreedy:
        return compare_choices(name, trace_.decode_logits, ".greedy_margin");
      case ExpectedKind::kLosses:
        return compare_losses(name, *expected_.floats(name));
      case ExpectedKind::kIds:
      case ExpectedKind::kArgmaxMargin:
      case ExpectedKind::kGreedyMargin:
      case ExpectedKind::kRouterGap:
        return;  // serve the comparison of others
    }
  }

  void compare_last_rows(const std::string& name, const Floats& wanted,
                         const std::vector<float>& all) {
    const size_t count = wanted.values.size();
    if (count == 0 || all.size() < count) return fail(name, "the engine has fewer rows");
    const float* actual = all.data() + (all.size() - count);
    double largest = 0;
    for (const float value : wanted.values) largest = std::max(largest, std::fabs(double{value}));
    double error = 0;
    size_t first_off = count;
    for (size_t i = 0; i < count; ++i) {
      const double difference = std::fabs(double{actual[i]} - wanted.values[i]) / largest;
      // A NaN compares false, so it counts as off.
      if (!(difference <= kValueLimit) && first_off == count) first_off = i;
      error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
    }
    const auto width = static_cast<size_t>(std::max<int64_t>(wanted.shape.back(), 1));
    add(name, static_cast<int64_t>(count), error, kValueLimit,
        fmt::format("row {}, column {}", first_off / width, first_off % width));
  }

  // A choice may differ where the file's margin is small, or the engine's when the file has none.
  void compare_choices(const std::string& name, const std::vector<float>& rows,
                       const std::string& margin_name) {
    const std::vector<int32_t>& wanted = expected_.ints(name)->values;
    const Floats* margins = expected_.floats(label_ + margin_name);
    int64_t off = 0;
    int64_t excused = 0;
    std::string first;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::span<const float> logits = trace_.row(rows, static_cast<int64_t>(i));
      const int32_t actual = argmax(logits);
      if (actual == wanted[i]) continue;
      const double margin = margins != nullptr ? double{margins->values[i]}
                                               : double{logits[static_cast<size_t>(actual)]} -
                                                     logits[static_cast<size_t>(wanted[i])];
      if (margin <= kNearMargin) {
        ++excused;
        continue;
      }
      if (off++ == 0) first = fmt::format("row {}: {} instead of {}", i, actual, wanted[i]);
    }
    add(name, static_cast<int64_t>(wanted.size()), static_cast<double>(off), 0, first, excused);
  }

  void compare_routes(const std::string& name, const Ints& wanted, size_t index) {
    const std::vector<int> moe = moe_layers(spec_);
    const auto width = static_cast<size_t>(wanted.shape.back());
    const auto rows = static_cast<int64_t>(wanted.values.size() / width);
    int64_t off = 0;
    int64_t excused = 0;
    std::string first;
    for (int64_t i = 0; i < rows; ++i) {
      const RouteChoice* choice = trace_.routes.find(moe[index], prompt_ - rows + i);
      const auto begin =
          wanted.values.begin() + static_cast<std::ptrdiff_t>(i) * std::ssize(choice->experts);
      if (choice->gap < kNearTie) ++excused;
      if (std::equal(choice->experts.begin(), choice->experts.end(), begin)) continue;
      if (off++ == 0) first = fmt::format("row {}", i);
    }
    add(name, rows, static_cast<double>(off), 0, first, excused);
  }

  void compare_losses(const std::string& name, const Floats& wanted) {
    const std::vector<int32_t>& ids = expected_.ints(label_ + ".ids")->values;
    double error = 0;
    size_t first_off = 0;
    for (size_t i = 0; i < wanted.values.size() && i + 1 < ids.size(); ++i) {
      const double loss =
          token_loss(trace_.row(trace_.logits, static_cast<int64_t>(i)), ids[i + 1]);
      const double difference = std::fabs(loss - wanted.values[i]);
      if (error <= kLossLimit && difference > kLossLimit) first_off = i;
      error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
    }
    add(name, static_cast<int64_t>(wanted.values.size()), error, kLossLimit,
        fmt::format("token {}", first_off));
  }

  void add(const std::string& name, int64_t compared, double error, double limit,
           const std::string& where, int64_t excused = 0) {
    const bool passed = error <= limit;
    report_->rows.push_back({.profile = "exact",
                             .tensor = name,
                             .compared = compared,
                             .error = error,
                             .limit = limit,
                             .excused = excused,
                             .passed = passed,
                             .first_off = passed ? "" : where});
  }

  void fail(const std::string& name, const std::string& why) {
    report_->rows.push_back(
        {.profile = "exact", .tensor = name, .error = HUGE_VAL, .first_off = why});
  }

  const ExpectedTensors& expected_;
  const std::string label_;
  const ModelSpec& spec_;
  const SequenceTrace& trace_;
  VerifyReport* report_;
  const int64_t prompt_;
};

}  // namespace

std::vector<int> moe_layers(const ModelSpec& spec) {
  std::vector<int> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (std::holds_alternative<MoeSpec>(spec.layers[i].feed_forward)) {
      layers.push_back(static_cast<int>(i));
    }
  }
  return layers;
}

double token_loss(std::span<const float> logits, int32_t token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum) - logits[static_cast<size_t>(token)];
}

TraceRequest request_for(const ExpectedTensors& expected, const std::string& label,
                         int64_t prefill_chunk) {
  TraceRequest request;
  request.prompt = expected.ints(label + ".ids")->values;
  request.prefill_chunk = prefill_chunk;
  if (const Ints* greedy = expected.ints(label + ".greedy")) request.continuation = greedy->values;
  request.layers = expected.has(label, ExpectedKind::kLayerOut);
  if (const Floats* chain = expected.floats(label + ".mtp.chain_logits")) {
    request.draft_steps = static_cast<int>(chain->shape.front());
  } else if (expected.floats(label + ".mtp.logits") != nullptr) {
    request.draft_steps = 1;
  }
  return request;
}

int64_t adopt_expected_routes(const ExpectedTensors& expected, const std::string& label,
                              const std::vector<int>& moe, int64_t prompt_tokens,
                              RouteTable* routes) {
  int64_t changed = 0;
  for (size_t index = 0; index < moe.size(); ++index) {
    const std::string stem = fmt::format("{}.router.{}.", label, index);
    if (const Floats* gaps = expected.floats(stem + "gap")) {
      const auto first = prompt_tokens - static_cast<int64_t>(gaps->values.size());
      for (size_t i = 0; i < gaps->values.size(); ++i) {
        routes->lower_gap(moe[index], first + static_cast<int64_t>(i), gaps->values[i]);
      }
    }
    const Ints* chosen = expected.ints(stem + "experts");
    if (chosen == nullptr || chosen->shape.size() != 2) continue;
    const int64_t width = chosen->shape[1];
    for (int64_t i = 0; i < chosen->shape[0]; ++i) {
      const int64_t position = prompt_tokens - chosen->shape[0] + i;
      const RouteChoice* own = routes->find(moe[index], position);
      const auto begin = chosen->values.begin() + i * width;
      std::vector<int32_t> theirs(begin, begin + width);
      if (own == nullptr || own->gap >= kNearTie || own->experts == theirs) continue;
      routes->replace_experts(moe[index], position, std::move(theirs));
      ++changed;
    }
  }
  return changed;
}

void check_label(const ExpectedTensors& expected, const std::string& label, const ModelSpec& spec,
                 const SequenceTrace& trace, VerifyReport* report) {
  LabelChecker(expected, label, spec, trace, report).run();
}

double FastTotals::loss_error() const {
  return losses == 0 ? 0 : std::fabs(loss - expected_loss) / static_cast<double>(losses);
}

double FastTotals::row_error() const {
  return rows == 0 ? 0 : static_cast<double>(rows - rows_equal) / static_cast<double>(rows);
}

void add_fast_label(const ExpectedTensors& expected, const std::string& label,
                    const SequenceTrace& trace, FastTotals* totals) {
  const std::vector<int32_t>& ids = expected.ints(label + ".ids")->values;
  const auto prompt = static_cast<int64_t>(ids.size());
  const auto add_loss = [&](int64_t row, double wanted) {
    totals->expected_loss += wanted;
    totals->loss += token_loss(trace.row(trace.logits, row), ids[static_cast<size_t>(row) + 1]);
    ++totals->losses;
  };
  const auto add_row = [&](std::span<const float> logits, int32_t wanted) {
    ++totals->rows;
    totals->rows_equal += argmax(logits) == wanted ? 1 : 0;
  };
  const Floats* logits = expected.floats(label + ".logits");
  if (logits != nullptr && logits->shape.size() == 2) {
    for (int64_t i = 0; i < logits->shape[0]; ++i) {
      const int64_t row = prompt - logits->shape[0] + i;
      if (row + 1 >= prompt) continue;
      const auto wanted =
          std::span<const float>(logits->values)
              .subspan(static_cast<size_t>(i * trace.vocab), static_cast<size_t>(trace.vocab));
      add_loss(row, token_loss(wanted, ids[static_cast<size_t>(row) + 1]));
    }
  }
  if (const Floats* losses = expected.floats(label + ".nll")) {
    for (size_t i = 0; i < losses->values.size(); ++i) {
      add_loss(static_cast<int64_t>(i), losses->values[i]);
    }
  }
  if (const Ints* best = expected.ints(label + ".argmax")) {
    for (size_t i = 0; i < best->values.size(); ++i) {
      add_row(trace.row(trace.logits, static_cast<int64_t>(i)), best->values[i]);
    }
  }
  if (const Ints* greedy = expected.ints(label + ".greedy")) {
    for (size_t i = 0; i < greedy->values.size(); ++i) {
      add_row(trace.row(trace.decode_logits, static_cast<int64_t>(i)), greedy->values[i]);
    }
  }
}

}  // namespace motley
