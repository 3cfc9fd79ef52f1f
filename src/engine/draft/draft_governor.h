// How many drafts a step should verify: the number that gives most tokens for the time it costs,
// by what was measured of steps with none, few and many.
//
// A step with k drafts gives 1 + sum over i <= k of c_1 .. c_i tokens, c_i the share of drafts at
// place i that were accepted after their predecessors. What it costs is a running mean per k; k in
// between are interpolated. When experts are streamed a step's time is that of its computation plus
// the bytes it read times what a byte has cost in waiting: so a drive's moods do not decide, and
// drafts whose experts cost more reads than the tokens they save are not made.
// Other numbers are tried now and then; no choice changes a token.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/draft/draft_stats.h"

namespace motley {

struct DraftCost {
  double seconds = 0;     // from guessing to having verified
  double wait_s = 0;      // of which nothing could be computed until a read arrived
  double read_bytes = 0;  // from the drive
};

class DraftGovernor {
 public:
  // Drafts of the next step, at most `most` (and kMostDrafts).
  int choose(int most);
  // What a step with `drafts` cost.
  void note_cost(int drafts, const DraftCost& cost);
  // What was compared in it.
  void note_stats(const DraftStats& step);

  // The number that is best by now.
  int best(int most) const;
  // Expected tokens of a step.
  double tokens(int drafts) const;
  // Expected cost; 0 while nothing is known.
  double seconds(int drafts) const;
  // "2 drafts a step (0: 9.1 ms a token, 1: 7.0, 2: 6.4, 3: 6.6)".
  std::string summary(int most) const;

 private:
  struct Mean {
    double value = 0;
    int64_t count = 0;
    void add(double sample);
  };
  double seconds_of(size_t drafts) const;

  int64_t steps_ = 0;
  std::array<Mean, kMostDrafts + 1> compute_s_;   // seconds without waiting
  std::array<Mean, kMostDrafts + 1> read_bytes_;  // of a step
  double waited_s_ = 0;
  double waited_bytes_ = 0;
  std::array<double, kMostDrafts> tried_{};
  std::array<double, kMostDrafts> accepted_{};
};

}  // namespace motley
