// How drafts fared: tried and accepted by their place in a draft.
// Thread rule: a value.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace motley {

constexpr int kMostDrafts = 8;

struct DraftStats {
  // Of the drafts at a place whose predecessors were all right: how many were compared with the
  // target's own choice, and how many equalled it.
  std::array<int64_t, kMostDrafts> tried{};
  std::array<int64_t, kMostDrafts> accepted{};
  // Steps that verified drafts, by how many were accepted.
  std::array<int64_t, kMostDrafts + 1> by_accepted{};

  int64_t steps() const;
  int64_t accepted_total() const;
  // Accepted of tried; 0 when none was.
  double rate(int place) const;
  // Places that were tried.
  int places() const;

  // One comparison.
  void count(int place, bool is_right) {
    ++tried[static_cast<size_t>(place)];
    if (is_right) ++accepted[static_cast<size_t>(place)];
  }
  DraftStats& operator+=(const DraftStats& other);
};

// "drafts   120 steps, 3.41 tokens each; accepted 0.89 0.94 0.95 (of 120 107 100)".
std::string draft_text(const DraftStats& stats);
// An object; "null" when `most` is 0.
std::string draft_json(int most, const DraftStats& stats);

}  // namespace motley
