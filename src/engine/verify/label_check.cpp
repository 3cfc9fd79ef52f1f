#include "engine/verify/label_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace motley {
namespace {

using Floats = ExpectedTensors::Floats;
using Ints = ExpectedTensors::Ints;

// Row i of the file's choice, for the token at `position`: some programs fill it up with later
// positions.
std::vector<int32_t> expected_keys(const Ints& selected, int64_t row, int64_t position) {
  const int64_t width = selected.shape[1];
  std::vector<int32_t> keys;
  for (int64_t i = row * width; i < (row + 1) * width; ++i) {
    const int32_t key = selected.values[static_cast<size_t>(i)];
    if (key >= 0 && key <= position) keys.push_back(key);
  }
  return keys;
}

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
        return compare_choices(name, trace_.logits, ".argmax_margin", 0);
      case ExpectedKind::kLayerOut:
        return compare_last_rows(name, *expected_.floats(name), trace_.layers[parts.index]);
      case ExpectedKind::kRouterExperts:
        return compare_routes(name, *expected_.ints(name), parts.index);
      case ExpectedKind::kIndexerSelected:
        return compare_keys(name, *expected_.ints(name), parts.index);
      case ExpectedKind::kDraftToken:
        return add(name, 1, trace_.next_token == expected_.ints(name)->values[0] ? 0 : 1, 0,
                   "the token");
      case ExpectedKind::kDraftLogits:
        return compare_last_rows(name, *expected_.floats(name), trace_.draft_logits);
      case ExpectedKind::kDraftChainLogits:
        return compare_last_rows(name, *expected_.floats(name), trace_.chain_logits);
      case ExpectedKind::kGreedy:
        return compare_choices(name, trace_.decode_logits, ".greedy_margin", prompt_ - 1);
      case ExpectedKind::kLosses:
        return compare_losses(name, *expected_.floats(name));
      case ExpectedKind::kIds:
      case ExpectedKind::kArgmaxMargin:
      case ExpectedKind::kGreedyMargin:
      case ExpectedKind::kRouterGap:
      case ExpectedKind::kIndexerGap:
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

  // Where after the prompt the file's program may have decided a near tie, of experts or keys, the
  // other way: the file does not say, and all rows from there on depend on it.
  int64_t first_open_tie() const {
    return std::min(trace_.choices.routes.first_near_tie(prompt_),
                    trace_.choices.keys.first_near_tie(prompt_));
  }

  // A choice may differ where the file's margin is small, or the engine's when the file has none.
  // `first` is the position of row 0.
  void compare_choices(const std::string& name, const std::vector<float>& rows,
                       const std::string& margin_name, int64_t first) {
    const std::vector<int32_t>& wanted = expected_.ints(name)->values;
    const Floats* margins = expected_.floats(label_ + margin_name);
    const int64_t open_tie = first_open_tie();
    int64_t off = 0;
    int64_t excused = 0;
    std::string first_off;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::span<const float> logits = trace_.row(rows, static_cast<int64_t>(i));
      const int32_t actual = argmax(logits);
      if (actual == wanted[i]) continue;
      const double margin = margins != nullptr ? double{margins->values[i]}
                                               : double{logits[static_cast<size_t>(actual)]} -
                                                     logits[static_cast<size_t>(wanted[i])];
      if (margin <= kNearMargin || first + static_cast<int64_t>(i) >= open_tie) {
        ++excused;
        continue;
      }
      if (off++ == 0) first_off = fmt::format("row {}: {} instead of {}", i, actual, wanted[i]);
    }
    add(name, static_cast<int64_t>(wanted.size()), static_cast<double>(off), 0, first_off, excused);
  }

  void compare_routes(const std::string& name, const Ints& wanted, size_t index) {
    const std::vector<int> moe = moe_layers(spec_);
    const auto width = static_cast<size_t>(wanted.shape.back());
    const auto rows = static_cast<int64_t>(wanted.values.size() / width);
    int64_t off = 0;
    int64_t excused = 0;
    std::string first;
    for (int64_t i = 0; i < rows; ++i) {
      const Choice* choice = trace_.choices.routes.find(moe[index], prompt_ - rows + i);
      const auto begin =
          wanted.values.begin() + static_cast<std::ptrdiff_t>(i) * std::ssize(choice->chosen);
      if (choice->gap < kNearTie) ++excused;
      if (std::equal(choice->chosen.begin(), choice->chosen.end(), begin)) continue;
      if (off++ == 0) first = fmt::format("row {}", i);
    }
    add(name, rows, static_cast<double>(off), 0, first, excused);
  }

  void compare_keys(const std::string& name, const Ints& wanted, size_t index) {
    const int layer = indexer_layers(spec_)[index];
    const int64_t rows = wanted.shape[0];
    int64_t off = 0;
    int64_t excused = 0;
    std::string first;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t position = prompt_ - rows + i;
      const std::vector<int32_t> theirs = expected_keys(wanted, i, position);
      const Choice* own = trace_.choices.keys.find(layer, position);
      if (own != nullptr && own->gap < kNearTie) ++excused;
      // A row that chose nothing sees all keys up to its own.
      if (own != nullptr ? own->chosen == theirs : std::ssize(theirs) == position + 1) continue;
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

std::vector<int> indexer_layers(const ModelSpec& spec) {
  std::vector<int> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* latent = std::get_if<LatentAttentionSpec>(&spec.layers[i].mixer);
    if (latent != nullptr && latent->keys == KeySource::kOwn) layers.push_back(static_cast<int>(i));
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

namespace {

void lower_gaps(const Floats* gaps, int layer, int64_t prompt_tokens, bool ties_are_decided,
                ChoiceTable* table) {
  if (gaps == nullptr) return;
  const auto first = prompt_tokens - static_cast<int64_t>(gaps->values.size());
  for (size_t i = 0; i < gaps->values.size(); ++i) {
    if (ties_are_decided && gaps->values[i] == 0) continue;
    table->lower_gap(layer, first + static_cast<int64_t>(i), gaps->values[i]);
  }
}

// Whether the table's near tie at this place was the other one.
bool adopt(ChoiceTable* table, int layer, int64_t position, std::vector<int32_t> theirs) {
  const Choice* own = table->find(layer, position);
  if (own == nullptr || own->gap >= kNearTie || own->chosen == theirs) return false;
  table->replace(layer, position, std::move(theirs));
  return true;
}

}  // namespace

int64_t adopt_expected_choices(const ExpectedTensors& expected, const std::string& label,
                               const ModelSpec& spec, int64_t prompt_tokens, ChoiceTables* tables) {
  int64_t changed = 0;
  const std::vector<int> moe = moe_layers(spec);
  for (size_t index = 0; index < moe.size(); ++index) {
    const std::string stem = fmt::format("{}.router.{}.", label, index);
    lower_gaps(expected.floats(stem + "gap"), moe[index], prompt_tokens, false, &tables->routes);
    const Ints* chosen = expected.ints(stem + "experts");
    if (chosen == nullptr || chosen->shape.size() != 2) continue;
    const int64_t width = chosen->shape[1];
    for (int64_t i = 0; i < chosen->shape[0]; ++i) {
      const auto begin = chosen->values.begin() + i * width;
      changed += adopt(&tables->routes, moe[index], prompt_tokens - chosen->shape[0] + i,
                       {begin, begin + width});
    }
  }
  const std::vector<int> indexers = indexer_layers(spec);
  for (size_t index = 0; index < indexers.size(); ++index) {
    const std::string stem = fmt::format("{}.indexer.{}.", label, index);
    lower_gaps(expected.floats(stem + "gap"), indexers[index], prompt_tokens, true, &tables->keys);
    const Ints* selected = expected.ints(stem + "selected");
    if (selected == nullptr) continue;
    for (int64_t i = 0; i < selected->shape[0]; ++i) {
      const int64_t position = prompt_tokens - selected->shape[0] + i;
      changed +=
          adopt(&tables->keys, indexers[index], position, expected_keys(*selected, i, position));
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
