// Choices by (layer, position), of experts and of keys: recorded from one run, forced upon another.
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

// In routing probability, or in scores: what float32 cannot decide, and what 16-bit caches cannot.
inline constexpr double kNearTie = 1e-5;
inline constexpr double kFastNearTie = 1.0 / 512;
// The same of experts in a model whose keys are chosen too (docs/decisions/0017-fast-keys.md).
inline constexpr double kFastNearTieWithKeys = 1.0 / 128;
inline constexpr double kAnyGap = HUGE_VAL;

struct Choice {
  std::vector<int32_t> chosen;  // experts, or positions of keys; ascending
  double gap = 0;               // last chosen minus first left out
};

class ChoiceTable {
 public:
  using Key = std::pair<int, int64_t>;  // layer, global position

  void set(int layer, int64_t position, Choice choice);
  void replace(int layer, int64_t position, std::vector<int32_t> chosen);
  // The gap becomes the smaller of its own and `gap`.
  void lower_gap(int layer, int64_t position, double gap);
  const Choice* find(int layer, int64_t position) const;
  int64_t near_ties(double gap = kNearTie) const;
  // The first position of a near tie in any layer, from `from` on; the greatest number if none.
  int64_t first_near_tie(int64_t from) const;
  int64_t size() const { return static_cast<int64_t>(choices_.size()); }

 private:
  std::map<Key, Choice> choices_;
};

// All choices of a run. Rows that see every key chose none and have no entry in `keys`.
struct ChoiceTables {
  ChoiceTable routes;
  ChoiceTable keys;
};

// Global position of each row of the batch.
std::vector<int64_t> row_positions(const Batch& batch);

// Records the choices of a run, with gaps computed in float64 from its router's and its indexers'
// scores. Equal scores of keys are no near tie: the order of positions decides them, in any
// precision, and relu makes many.
class ChoiceRecorder : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  ConstTensorView router_scores(int layer, const Batch& batch, const RouterScores& scores) override;
  void routing(int layer, const Batch& batch, const Routing& routing) override;
  ConstTensorView index_scores(int layer, const Batch& batch,
                               const IndexScoresView& scores) override;
  void key_selection(int layer, const Batch& batch, const KeySelection& selection) override;
  ChoiceTables& tables() { return tables_; }

 private:
  ChoiceTables tables_;
  std::vector<std::vector<double>> ranked_;  // of the layer now being routed
  std::vector<double> group_gaps_;           // the same, where groups are chosen first
  std::map<int64_t, double> key_gaps_;       // by row of the batch, of the indexer now at work
};

// Forces those choices of a run whose deciding gap is smaller than a limit of its kind.
class ChoiceForcer : public StepObserver {
 public:
  ChoiceForcer(const ChoiceTables& tables, double routes_below, double keys_below)
      : tables_(tables), routes_below_(routes_below), keys_below_(keys_below) {}
  bool wants_activations() const override { return true; }
  ConstTensorView router_scores(int layer, const Batch& batch, const RouterScores& scores) override;
  ConstTensorView index_scores(int layer, const Batch& batch,
                               const IndexScoresView& scores) override;
  int64_t forced_rows() const { return forced_rows_; }  // of routes, so far
  int64_t forced_keys() const { return forced_keys_; }  // rows whose keys were forced

 private:
  // Choices of the rows at these positions, `width` columns, -1 where free; empty when none is
  // forced.
  ConstTensorView force(const ChoiceTable& table, double below, int layer,
                        std::span<const int64_t> positions, size_t width, int64_t* rows);

  const ChoiceTables& tables_;
  double routes_below_;
  double keys_below_;
  std::vector<int32_t> forced_;
  int64_t forced_rows_ = 0;
  int64_t forced_keys_ = 0;
};

}  // namespace motley
