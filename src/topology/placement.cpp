#include "topology/placement.h"

#include <algorithm>

namespace motley {
namespace {

void add(const PlacementRow& row, PlacementTotal* total) {
  ++total->tensors;
  total->elements += row.elements;
  total->file_bytes += row.file_bytes;
  total->memory_bytes += row.memory_bytes;
}

template <typename Key>
std::vector<PlacementTotal> totals(const std::vector<PlacementRow>& rows, Key key_of) {
  std::vector<PlacementTotal> result;
  for (const PlacementRow& row : rows) {
    const std::string_view key = key_of(row);
    auto found = std::find_if(result.begin(), result.end(),
                              [&](const PlacementTotal& total) { return total.key == key; });
    if (found == result.end()) {
      result.push_back({.key = std::string(key)});
      found = std::prev(result.end());
    }
    add(row, &*found);
  }
  return result;
}

}  // namespace

std::string_view placement_kind_name(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::kMapped:
      return "mapped";
    case PlacementKind::kCopied:
      return "copied";
    case PlacementKind::kStreamed:
      return "streamed";
    case PlacementKind::kTied:
      return "tied";
    case PlacementKind::kSkipped:
      return "skipped";
  }
  return "unknown";
}

std::vector<PlacementTotal> Placement::by_part() const {
  return totals(rows, [](const PlacementRow& row) { return std::string_view(row.part); });
}
std::vector<PlacementTotal> Placement::by_format() const {
  return totals(rows, [](const PlacementRow& row) { return std::string_view(row.format); });
}
std::vector<PlacementTotal> Placement::by_kind() const {
  return totals(rows, [](const PlacementRow& row) { return placement_kind_name(row.where); });
}

PlacementTotal Placement::total() const {
  PlacementTotal result{.key = "total"};
  for (const PlacementRow& row : rows) add(row, &result);
  return result;
}

}  // namespace motley
