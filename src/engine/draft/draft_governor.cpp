#include "engine/draft/draft_governor.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

// Weight of a new sample in a running mean that has settled.
constexpr double kNewest = 0.15;
// How much of older comparisons remains with each new one.
constexpr double kFade = 0.99;
// Before anything is known: as a healthy draft layer does.
constexpr double kPriorTried = 2;
constexpr double kPriorAccepted = 1.6;
constexpr int kFirstProbes = 3;      // steps of each number that is tried at the start
constexpr int64_t kProbeEvery = 24;  // steps, later
// In a row: the first may have to catch up with steps that made no drafts, and is not counted.
constexpr int64_t kProbeSteps = 2;

}  // namespace

void DraftGovernor::Mean::add(double sample) {
  ++count;
  value += (sample - value) * std::max(kNewest, 1.0 / static_cast<double>(count));
}

int DraftGovernor::choose(int most) {
  most = std::min(most, kMostDrafts);
  const int64_t step = steps_++;
  const std::array first = {std::min(3, most), 0, most, std::min(1, most)};
  if (step < kFirstProbes * std::ssize(first)) {
    return first[static_cast<size_t>(step / kFirstProbes)];
  }
  const int best_now = best(most);
  if (step % kProbeEvery >= kProbeSteps) return best_now;
  switch (step / kProbeEvery % 3) {
    case 0:
      return std::max(best_now - 1, 0);
    case 1:
      return std::min(best_now + 1, most);
    default:
      return best_now == 0 ? std::min(1, most) : 0;
  }
}

void DraftGovernor::note_cost(int drafts, const DraftCost& cost) {
  const auto index = static_cast<size_t>(drafts);
  compute_s_[index].add(cost.seconds - cost.wait_s);
  read_bytes_[index].add(cost.read_bytes);
  waited_s_ = kFade * waited_s_ + cost.wait_s;
  waited_bytes_ = kFade * waited_bytes_ + cost.read_bytes;
}

void DraftGovernor::note_stats(const DraftStats& step) {
  for (size_t i = 0; i < tried_.size(); ++i) {
    if (step.tried[i] == 0) continue;
    tried_[i] = kFade * tried_[i] + static_cast<double>(step.tried[i]);
    accepted_[i] = kFade * accepted_[i] + static_cast<double>(step.accepted[i]);
  }
}

double DraftGovernor::tokens(int drafts) const {
  double total = 1;
  double chance = 1;
  for (size_t i = 0; i < static_cast<size_t>(drafts); ++i) {
    chance *= (accepted_[i] + kPriorAccepted) / (tried_[i] + kPriorTried);
    total += chance;
  }
  return total;
}

double DraftGovernor::seconds_of(size_t drafts) const {
  const double per_byte = waited_bytes_ > 0 ? waited_s_ / waited_bytes_ : 0;
  return compute_s_[drafts].value + per_byte * read_bytes_[drafts].value;
}

double DraftGovernor::seconds(int drafts) const {
  const auto wanted = static_cast<size_t>(drafts);
  if (compute_s_[wanted].count > 0) return seconds_of(wanted);
  // Between the measured numbers around it; beyond the largest: on as from the smallest to it.
  size_t below = wanted;
  while (below > 0 && compute_s_[below].count == 0) --below;
  size_t above = wanted;
  while (above < kMostDrafts && compute_s_[above].count == 0) ++above;
  if (compute_s_[below].count == 0 && compute_s_[above].count == 0) return 0;
  if (compute_s_[below].count == 0) return seconds_of(above);
  if (compute_s_[above].count > 0) {
    const double share = static_cast<double>(wanted - below) / static_cast<double>(above - below);
    return seconds_of(below) + share * (seconds_of(above) - seconds_of(below));
  }
  size_t start = 0;
  while (compute_s_[start].count == 0) ++start;
  if (start == below) return seconds_of(below);
  const double slope = (seconds_of(below) - seconds_of(start)) / static_cast<double>(below - start);
  return seconds_of(below) + slope * static_cast<double>(wanted - below);
}

int DraftGovernor::best(int most) const {
  int best_drafts = 0;
  for (int drafts = 1; drafts <= std::min(most, kMostDrafts); ++drafts) {
    if (tokens(drafts) * seconds(best_drafts) > tokens(best_drafts) * seconds(drafts)) {
      best_drafts = drafts;
    }
  }
  return best_drafts;
}

std::string DraftGovernor::summary(int most) const {
  const int best_drafts = best(most);
  std::string text = fmt::format("{} draft{} a step (", best_drafts, best_drafts == 1 ? "" : "s");
  for (int drafts = 0; drafts <= std::min(most, kMostDrafts); ++drafts) {
    text += fmt::format("{}{}: {:.2f}{}", drafts == 0 ? "" : ", ", drafts,
                        1e3 * seconds(drafts) / tokens(drafts), drafts == 0 ? " ms a token" : "");
  }
  return text + ")";
}

}  // namespace motley
