#include "cli/suggestion.h"

#include <algorithm>
#include <vector>

namespace motley {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> closest_name(std::string_view name, std::span<const std::string> known) {
  constexpr size_t kMaxLength = 100;  // a longer one is no typing error
  if (name.size() > kMaxLength) return std::nullopt;
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (best != nullptr && distance >= best_distance) continue;
    best = &candidate;
    best_distance = distance;
  }
  if (best == nullptr || best_distance > std::max<size_t>(1, name.size() / 3)) return std::nullopt;
  return *best;
}

std::string suggestion_for(std::string_view name, std::span<const std::string> known) {
  const auto closest = closest_name(name, known);
  return closest ? "; did you mean " + *closest + "?" : "";
}

}  // namespace motley
