#include "engine/verify/route_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace motley {
namespace {

std::vector<double> row_values(const ConstTensorView& view, int64_t row, int64_t count) {
  if (view.dtype == DType::kF64) return {view.row<double>(row), view.row<double>(row) + count};
  return {view.row<float>(row), view.row<float>(row) + count};
}

void softmax(std::vector<double>* values) {
  const double highest = *std::max_element(values->begin(), values->end());
  double sum = 0;
  for (double& value : *values) sum += value = std::exp(value - highest);
  for (double& value : *values) value /= sum;
}

// The count-th best minus the next; infinite when nothing is left out.
double ranked_gap(std::vector<double> values, int64_t count) {
  if (count >= std::ssize(values)) return HUGE_VAL;
  const auto next = values.begin() + count;
  std::nth_element(values.begin(), next, values.end(), std::greater<>());
  return *std::min_element(values.begin(), next) - *next;
}

// Smallest chosen minus largest left out; infinite when nothing is left out.
double deciding_gap(const std::vector<double>& p, const std::vector<int32_t>& chosen) {
  double smallest = HUGE_VAL;
  double rival = -HUGE_VAL;
  for (size_t i = 0; i < p.size(); ++i) {
    const bool is_chosen =
        std::binary_search(chosen.begin(), chosen.end(), static_cast<int32_t>(i));
    if (is_chosen) {
      smallest = std::min(smallest, p[i]);
    } else {
      rival = std::max(rival, p[i]);
    }
  }
  return smallest - rival;
}

// What a router of sigmoids ranks by, experts outside of the kept groups at -infinity; *gap:
// between the groups kept and the next.
std::vector<double> sigmoid_choice(const RouterScores& scores, std::vector<double> values,
                                   double* gap) {
  for (size_t e = 0; e < values.size(); ++e) {
    values[e] = 1 / (1 + std::exp(-values[e])) + double{scores.correction_bias.as<float>()[e]};
  }
  const auto groups = static_cast<size_t>(scores.moe.groups);
  if (groups == 1) return values;
  const size_t size = values.size() / groups;
  std::vector<double> sums;
  for (size_t group = 0; group < groups; ++group) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(group * size);
    std::vector<double> own(begin, begin + static_cast<std::ptrdiff_t>(size));
    std::sort(own.begin(), own.end(), std::greater<>());
    sums.push_back(size > 1 ? own[0] + own[1] : own[0]);
  }
  *gap = ranked_gap(sums, scores.moe.kept_groups);
  std::vector<size_t> order(groups);
  for (size_t group = 0; group < groups; ++group) order[group] = group;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sums[a] > sums[b]; });
  for (size_t i = static_cast<size_t>(scores.moe.kept_groups); i < groups; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(order[i] * size);
    std::fill_n(begin, size, -HUGE_VAL);
  }
  return values;
}

}  // namespace

void ChoiceTable::set(int layer, int64_t position, Choice choice) {
  choices_[{layer, position}] = std::move(choice);
}

void ChoiceTable::replace(int layer, int64_t position, std::vector<int32_t> chosen) {
  const auto found = choices_.find({layer, position});
  if (found != choices_.end()) found->second.chosen = std::move(chosen);
}

void ChoiceTable::lower_gap(int layer, int64_t position, double gap) {
  const auto found = choices_.find({layer, position});
  if (found != choices_.end()) found->second.gap = std::min(found->second.gap, gap);
}

const Choice* ChoiceTable::find(int layer, int64_t position) const {
  const auto found = choices_.find({layer, position});
  return found == choices_.end() ? nullptr : &found->second;
}

int64_t ChoiceTable::near_ties(double gap) const {
  return std::count_if(choices_.begin(), choices_.end(),
                       [gap](const auto& entry) { return entry.second.gap < gap; });
}

int64_t ChoiceTable::first_near_tie(int64_t from) const {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [key, choice] : choices_) {
    if (key.second >= from && choice.gap < kNearTie) first = std::min(first, key.second);
  }
  return first;
}

std::vector<int64_t> row_positions(const Batch& batch) {
  std::vector<int64_t> positions(static_cast<size_t>(batch.rows()));
  for (const BatchSegment& segment : batch.segments) {
    for (int32_t i = 0; i < segment.rows.rows; ++i) {
      positions[static_cast<size_t>(segment.rows.first_row + i)] =
          segment.rows.first_position.value + i;
    }
  }
  return positions;
}

ConstTensorView ChoiceRecorder::router_scores(int, const Batch& batch, const RouterScores& scores) {
  ranked_.clear();
  group_gaps_.assign(static_cast<size_t>(batch.rows()), HUGE_VAL);
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<double> values = row_values(scores.logits, row, scores.logits.cols());
    if (scores.moe.router_kind == RouterKind::kSigmoid) {
      values = sigmoid_choice(scores, std::move(values), &group_gaps_[static_cast<size_t>(row)]);
    } else {
      softmax(&values);
    }
    ranked_.push_back(std::move(values));
  }
  return {};
}

void ChoiceRecorder::routing(int layer, const Batch& batch, const Routing& routing) {
  const std::vector<int64_t> positions = row_positions(batch);
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const auto index = static_cast<size_t>(row);
    const int32_t* chosen = routing.experts.row<int32_t>(row);
    Choice choice;
    choice.chosen.assign(chosen, chosen + routing.experts.cols());
    choice.gap = std::min(group_gaps_[index], deciding_gap(ranked_[index], choice.chosen));
    tables_.routes.set(layer, positions[index], std::move(choice));
  }
}

ConstTensorView ChoiceRecorder::index_scores(int, const Batch&, const IndexScoresView& scores) {
  for (int64_t row = 0; row < scores.scores.rows(); ++row) {
    const int32_t count = *scores.candidates.row<int32_t>(row);
    const double gap = ranked_gap(row_values(scores.scores, row, count), scores.top_k);
    key_gaps_[scores.first_row + row] = gap == 0 ? HUGE_VAL : gap;
  }
  return {};
}

void ChoiceRecorder::key_selection(int layer, const Batch& batch, const KeySelection& selection) {
  const std::vector<int64_t> positions = row_positions(batch);
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const int32_t count = *selection.counts.row<int32_t>(row);
    if (count == kEveryKey) continue;
    const auto* first = reinterpret_cast<const int32_t*>(selection.positions.data) +
                        row * selection.positions.row_stride;
    const auto gap = key_gaps_.find(row);
    tables_.keys.set(
        layer, positions[static_cast<size_t>(row)],
        {.chosen = {first, first + count}, .gap = gap == key_gaps_.end() ? HUGE_VAL : gap->second});
  }
  key_gaps_.clear();
}

ConstTensorView ChoiceForcer::force(const ChoiceTable& table, double below, int layer,
                                    std::span<const int64_t> positions, size_t width,
                                    int64_t* rows) {
  forced_.assign(positions.size() * width, -1);
  const int64_t before = *rows;
  for (size_t row = 0; row < positions.size(); ++row) {
    const Choice* choice = table.find(layer, positions[row]);
    if (choice == nullptr || !(choice->gap < below || below == kAnyGap)) continue;
    MOTLEY_CHECK(choice->chosen.size() <= width, "a forced choice is wider than the model's");
    std::copy(choice->chosen.begin(), choice->chosen.end(),
              forced_.begin() + static_cast<std::ptrdiff_t>(row * width));
    ++*rows;
  }
  if (*rows == before) return {};
  return view_of(static_cast<const int32_t*>(forced_.data()),
                 {static_cast<int64_t>(positions.size()), static_cast<int64_t>(width)});
}

ConstTensorView ChoiceForcer::router_scores(int layer, const Batch& batch,
                                            const RouterScores& scores) {
  return force(tables_.routes, routes_below_, layer, row_positions(batch),
               static_cast<size_t>(scores.moe.experts_per_token), &forced_rows_);
}

ConstTensorView ChoiceForcer::index_scores(int layer, const Batch& batch,
                                           const IndexScoresView& scores) {
  const std::vector<int64_t> positions = row_positions(batch);
  return force(tables_.keys, keys_below_, layer,
               std::span(positions).subspan(static_cast<size_t>(scores.first_row),
                                            static_cast<size_t>(scores.scores.rows())),
               static_cast<size_t>(scores.width), &forced_keys_);
}

}  // namespace motley
