// Expert choices by (layer, position): recorded from one run, forced upon another.
//
// A choice whose deciding gap is below kNearTie could fall either way in float32, and later rows
// depend on it; verification forces such rows to the reference's choice and counts them.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "model/observer.h"

namespace motley {

// In routing probability: what float32 cannot decide, and what 16-bit caches cannot.
inline constexpr double kNearTie = 1e-5;
inline constexpr double kFastNearTie = 1.0 / 512;
inline constexpr double kAnyGap = HUGE_VAL;

struct RouteChoice {
  std::vector<int32_t> experts;  // ascending
  double gap = 0;                // last chosen minus first left out
};

class RouteTable {
 public:
  using Key = std::pair<int, int64_t>;  // layer, global position

  void set(int layer, int64_t position, RouteChoice choice);
  void replace_experts(int layer, int64_t position, std::vector<int32_t> experts);
  // The gap becomes the smaller of its own and `gap`.
  void lower_gap(int layer, int64_t position, double gap);
  const RouteChoice* find(int layer, int64_t position) const;
  int64_t near_ties(double gap = kNearTie) const;
  int64_t size() const { return static_cast<int64_t>(choices_.size()); }

 private:
  std::map<Key, RouteChoice> choices_;
};

// Global position of each row of the batch.
std::vector<int64_t> row_positions(const Batch& batch);

// Records the choices of a run, with gaps computed in float64 from its router logits.
class RouteRecorder : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  ConstTensorView router_logits(int layer, const Batch& batch,
                                const ConstTensorView& logits) override;
  void routing(int layer, const Batch& batch, const Routing& routing) override;
  RouteTable& table() { return table_; }

 private:
  RouteTable table_;
  std::vector<std::vector<double>> probabilities_;  // of the layer now being routed
};

// Forces those choices of a table whose deciding gap is smaller than `below`.
class RouteForcer : public StepObserver {
 public:
  RouteForcer(const RouteTable& table, double below) : table_(table), below_(below) {}
  bool wants_activations() const override { return true; }
  ConstTensorView router_logits(int layer, const Batch& batch,
                                const ConstTensorView& logits) override;
  int64_t forced_rows() const { return forced_rows_; }  // so far

 private:
  const RouteTable& table_;
  double below_;
  std::vector<int32_t> forced_;
  int64_t forced_rows_ = 0;
};

}  // namespace motley
