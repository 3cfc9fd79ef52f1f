#include "engine/verify/route_table.h"

#include <algorithm>
#include <cmath>

namespace motley {
namespace {

std::vector<double> softmax_row(const ConstTensorView& logits, int64_t row) {
  const auto count = static_cast<size_t>(logits.cols());
  std::vector<double> p(count);
  for (size_t i = 0; i < count; ++i) {
    p[i] = logits.dtype == DType::kF64 ? logits.row<double>(row)[i]
                                       : static_cast<double>(logits.row<float>(row)[i]);
  }
  const double highest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - highest);
  for (double& value : p) value /= sum;
  return p;
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

}  // namespace

void RouteTable::set(int layer, int64_t position, RouteChoice choice) {
  choices_[{layer, position}] = std::move(choice);
}

void RouteTable::replace_experts(int layer, int64_t position, std::vector<int32_t> experts) {
  const auto found = choices_.find({layer, position});
  if (found != choices_.end()) found->second.experts = std::move(experts);
}

void RouteTable::lower_gap(int layer, int64_t position, double gap) {
  const auto found = choices_.find({layer, position});
  if (found != choices_.end()) found->second.gap = std::min(found->second.gap, gap);
}

const RouteChoice* RouteTable::find(int layer, int64_t position) const {
  const auto found = choices_.find({layer, position});
  return found == choices_.end() ? nullptr : &found->second;
}

int64_t RouteTable::near_ties(double gap) const {
  return std::count_if(choices_.begin(), choices_.end(),
                       [gap](const auto& entry) { return entry.second.gap < gap; });
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

ConstTensorView RouteRecorder::router_logits(int, const Batch& batch,
                                             const ConstTensorView& logits) {
  probabilities_.clear();
  for (int64_t row = 0; row < batch.rows(); ++row) {
    probabilities_.push_back(softmax_row(logits, row));
  }
  return {};
}

void RouteRecorder::routing(int layer, const Batch& batch, const Routing& routing) {
  const std::vector<int64_t> positions = row_positions(batch);
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const int32_t* chosen = routing.experts.row<int32_t>(row);
    RouteChoice choice;
    choice.experts.assign(chosen, chosen + routing.experts.cols());
    choice.gap = deciding_gap(probabilities_[static_cast<size_t>(row)], choice.experts);
    table_.set(layer, positions[static_cast<size_t>(row)], std::move(choice));
  }
}

ConstTensorView RouteForcer::router_logits(int layer, const Batch& batch, const ConstTensorView&) {
  const std::vector<int64_t> positions = row_positions(batch);
  std::vector<const RouteChoice*> rows;
  size_t width = 0;
  for (const int64_t position : positions) {
    const RouteChoice* choice = table_.find(layer, position);
    const bool force = choice != nullptr && choice->gap < below_;
    rows.push_back(force ? choice : nullptr);
    if (!force) continue;
    width = choice->experts.size();
    ++forced_rows_;
  }
  if (width == 0) return {};
  forced_.assign(rows.size() * width, -1);
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] == nullptr) continue;
    std::copy(rows[row]->experts.begin(), rows[row]->experts.end(),
              forced_.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
  return view_of(static_cast<const int32_t*>(forced_.data()),
                 {static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)});
}

}  // namespace motley
