#include "engine/draft/draft_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace motley {

int64_t DraftStats::steps() const {
  return std::accumulate(by_accepted.begin(), by_accepted.end(), int64_t{0});
}

int64_t DraftStats::accepted_total() const {
  return std::accumulate(accepted.begin(), accepted.end(), int64_t{0});
}

double DraftStats::rate(int place) const {
  const auto index = static_cast<size_t>(place);
  if (tried[index] == 0) return 0;
  return static_cast<double>(accepted[index]) / static_cast<double>(tried[index]);
}

int DraftStats::places() const {
  int count = 0;
  while (count < kMostDrafts && tried[static_cast<size_t>(count)] > 0) ++count;
  return count;
}

DraftStats& DraftStats::operator+=(const DraftStats& other) {
  for (size_t i = 0; i < tried.size(); ++i) {
    tried[i] += other.tried[i];
    accepted[i] += other.accepted[i];
  }
  for (size_t i = 0; i < by_accepted.size(); ++i) by_accepted[i] += other.by_accepted[i];
  return *this;
}

std::string draft_text(const DraftStats& stats) {
  const auto steps = static_cast<double>(std::max<int64_t>(stats.steps(), 1));
  std::string rates;
  std::string tries;
  for (int place = 0; place < stats.places(); ++place) {
    rates += fmt::format(" {:.2f}", stats.rate(place));
    tries += fmt::format(" {}", stats.tried[static_cast<size_t>(place)]);
  }
  if (rates.empty()) return "drafts   none were verified";
  return fmt::format("drafts   {} steps, {:.2f} tokens each; accepted{} (of{})", stats.steps(),
                     1 + static_cast<double>(stats.accepted_total()) / steps, rates, tries);
}

std::string draft_json(int most, const DraftStats& stats) {
  if (most == 0) return "null";
  const auto count = static_cast<std::ptrdiff_t>(most);
  const auto list = [](auto begin, auto end) {
    return fmt::format("{}", fmt::join(begin, end, ", "));
  };
  std::string rates;
  for (int place = 0; place < most; ++place) {
    rates += fmt::format("{}{:.4f}", place == 0 ? "" : ", ", stats.rate(place));
  }
  return fmt::format(
      "{{\"most\": {}, \"steps\": {}, \"tried\": [{}], \"accepted\": [{}], "
      "\"acceptance\": [{}], \"steps_by_accepted\": [{}]}}",
      most, stats.steps(), list(stats.tried.begin(), stats.tried.begin() + count),
      list(stats.accepted.begin(), stats.accepted.begin() + count), rates,
      list(stats.by_accepted.begin(), stats.by_accepted.begin() + count + 1));
}

}  // namespace motley
