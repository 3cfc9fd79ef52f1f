// Mixture-of-experts feed-forward: router, routed experts in waves, shared expert, sum.
// Source: transformers models/qwen3_5_moe/modeling_qwen3_5_moe.py, Qwen3_5MoeSparseMoeBlock; with
// routing by sigmoids models/deepseek_v3, DeepseekV3MoE, whose shared expert has no gate.
#pragma once

#include "experts/expert_store.h"
#include "io/loader.h"
#include "model/batch.h"
#include "model/observer.h"
#include "model/step_context.h"
#include "spec/model_spec.h"

namespace motley {

// The weights of every expert of a layer, for the resident store.
std::vector<ExpertWeights> layer_experts(const MoeSpec& spec, const LoadedWeights& weights);

class MoeBlock {
 public:
  MoeBlock(const MoeSpec& spec, const LoadedWeights& weights, ExpertStore& store, int layer);

  // out [rows, hidden] from x [rows, hidden]. `meanwhile`: see ExpertStore::for_each_wave().
  Status run(StepContext& context, const Batch& batch, const ConstTensorView& x,
             const TensorView& out, StepObserver& observer, ExpertStore::Meanwhile meanwhile) const;

  // Tells the store what the router would choose for x, which is near to what run() will get.
  void guess(StepContext& context, const Batch& batch, const ConstTensorView& x) const;

 private:
  Routing route(StepContext& context, const Batch& batch, const ConstTensorView& x,
                StepObserver& observer) const;
  Status run_experts(StepContext& context, RowCounts counts, const ConstTensorView& x,
                     const Routing& routing, const TensorView& pair_out,
                     ExpertStore::Meanwhile meanwhile) const;
  void run_shared(StepContext& context, RowCounts counts, const ConstTensorView& x,
                  const TensorView& out) const;

  MoeSpec spec_;
  ExpertStore& store_;
  int layer_;
  WeightMatrix router_;
  WeightMatrix shared_gate_;
  WeightMatrix shared_up_;
  WeightMatrix shared_down_;
  WeightMatrix shared_expert_gate_;  // may be empty
  ConstTensorView correction_bias_;  // of routing by sigmoids
};

}  // namespace motley
