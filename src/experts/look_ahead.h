// Which guesses about the next layer's experts are worth a read.
//
// The next layer's router, run on the hidden state before this layer's experts were added, names
// most of the experts that it will choose. Each guess has a rank; how often guesses of a rank come
// true is measured as the model runs, and only ranks that are right more often than not are read.
// They may take no more of the drive than it is idle between two layers' own reads, also measured.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"

namespace motley {

class LookAhead {
 public:
  static constexpr double kLeastPrecision = 0.5;  // a wrong read costs as much as a right one saves

  // What layer `layer` will probably choose: ids of rows, each row's most likely first.
  void expect(int layer, std::span<const int32_t> likely, int per_row);
  // Of the missing ones those that are worth reading, most likely first and each once, at most
  // `most`. Valid until the next expect().
  std::span<const int32_t> chosen(int most, FunctionRef<bool(int32_t)> is_missing);
  // As many experts of that size as the drive can read while it would be idle, and at least one.
  int most_reads(int64_t expert_bytes) const;
  // The choice is known: learns how good each rank was. `wanted` is ascending. False when it was
  // not this layer that had been guessed.
  bool check(int layer, std::span<const int32_t> wanted);

  // The drive had nothing that a step waited for, between two layers.
  void record_idle(double seconds);
  // All that the drive has read so far, and how long it took.
  void record_drive(int64_t bytes, double busy_s);

  double precision(int rank) const { return precision_[static_cast<size_t>(rank)]; }
  double idle_s() const { return idle_s_; }

 private:
  int layer_ = -1;  // whose choice is guessed
  int per_row_ = 1;
  std::vector<int32_t> likely_;
  std::vector<int32_t> chosen_;
  std::vector<double> precision_;  // by rank
  double idle_s_ = 0;
  // Of late: sums that decay.
  double bytes_ = 0;
  double busy_s_ = 0;
  int64_t all_bytes_ = 0;
  double all_busy_s_ = 0;
};

}  // namespace motley
