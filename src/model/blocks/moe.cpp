#include "model/blocks/moe.h"

#include <array>
#include <vector>

#include "model/blocks/pair_lists.h"

namespace motley {

std::vector<ExpertWeights> layer_experts(const MoeSpec& spec, const LoadedWeights& weights) {
  std::vector<ExpertWeights> experts(static_cast<size_t>(spec.experts));
  for (int expert = 0; expert < spec.experts; ++expert) {
    experts[static_cast<size_t>(expert)] = {.gate = weights.expert(spec.gate, expert),
                                            .up = weights.expert(spec.up, expert),
                                            .down = weights.expert(spec.down, expert)};
  }
  return experts;
}

MoeBlock::MoeBlock(const MoeSpec& spec, const LoadedWeights& weights, ExpertStore& store, int layer)
    : spec_(spec),
      store_(store),
      layer_(layer),
      router_(weights.matrix(spec.router)),
      shared_gate_(weights.matrix(spec.shared_gate)),
      shared_up_(weights.matrix(spec.shared_up)),
      shared_down_(weights.matrix(spec.shared_down)),
      shared_expert_gate_(spec.shared_expert_gate.is_set() ? weights.matrix(spec.shared_expert_gate)
                                                           : WeightMatrix{}) {
  if (spec.router_kind == RouterKind::kSigmoid) {
    correction_bias_ = weights.vector(spec.correction_bias);
  }
}

Status MoeBlock::run(StepContext& context, const Batch& batch, const ConstTensorView& x,
                     const TensorView& out, StepObserver& observer,
                     ExpertStore::Meanwhile meanwhile) const {
  const Arena::Scope scope(context.stream.scratch());
  const Routing routing = route(context, batch, x, observer);
  const TensorView pair_out = context.scratch({batch.rows() * spec_.experts_per_token, x.shape[1]});
  MOTLEY_RETURN_IF_ERROR(run_experts(context, batch.counts, x, routing, pair_out, meanwhile));
  run_shared(context, batch.counts, x, out);
  context.ops.moe.combine(context.stream, pair_out, routing, out, out);
  return all_reduce(context, out);
}

Routing MoeBlock::route(StepContext& context, const Batch& batch, const ConstTensorView& x,
                        StepObserver& observer) const {
  const int64_t rows = batch.rows();
  const Routing routing{
      .experts = scratch_view(context.stream, DType::kI32, {rows, spec_.experts_per_token}),
      .weights = context.scratch({rows, spec_.experts_per_token}),
  };
  const Arena::Scope scope(context.stream.scratch());
  const TensorView logits = context.scratch({rows, spec_.experts});
  const LinearTarget target{router_, logits};
  context.ops.linear.linear(context.stream, x, batch.counts, std::span(&target, 1));
  ConstTensorView forced;
  if (observer.wants_activations()) {
    context.stream.synchronize();
    forced = observer.router_scores(layer_, batch, {logits, spec_, correction_bias_});
  }
  if (spec_.router_kind == RouterKind::kSigmoid) {
    context.ops.moe.route_sigmoid(context.stream, logits, correction_bias_,
                                  {.experts_per_token = spec_.experts_per_token,
                                   .normalise = spec_.normalise,
                                   .groups = spec_.groups,
                                   .kept_groups = spec_.kept_groups,
                                   .scale = spec_.routed_scale},
                                  forced, routing);
  } else {
    context.ops.moe.route_softmax(
        context.stream, logits,
        {.experts_per_token = spec_.experts_per_token, .normalise = spec_.normalise}, forced,
        routing);
  }
  if (observer.wants_routing()) {
    context.stream.synchronize();
    observer.routing(layer_, batch, routing);
  }
  return routing;
}

void MoeBlock::guess(StepContext& context, const Batch& batch, const ConstTensorView& x) const {
  const Arena::Scope scope(context.stream.scratch());
  StepObserver nobody;  // a guess is nothing to look at
  const Routing routing = route(context, batch, x, nobody);
  context.stream.synchronize();
  store_.expect(layer_,
                std::span(routing.experts.as<int32_t>(),
                          static_cast<size_t>(routing.experts.shape.elements())),
                spec_.experts_per_token);
}

Status MoeBlock::run_experts(StepContext& context, RowCounts counts, const ConstTensorView& x,
                             const Routing& routing, const TensorView& pair_out,
                             ExpertStore::Meanwhile meanwhile) const {
  context.stream.synchronize();  // the choice is read on the host
  const PairLists lists(std::span(routing.experts.as<int32_t>(),
                                  static_cast<size_t>(routing.experts.shape.elements())),
                        spec_.experts);
  std::vector<ExpertWork> work;
  const auto compute = [&](std::span<const ResolvedExpert> wave) {
    work.clear();
    for (const ResolvedExpert& resolved : wave) {
      work.push_back({resolved.weights, lists.pairs_of(resolved.expert)});
    }
    context.ops.moe.experts(context.stream, x, counts,
                            {spec_.experts_per_token, {.limit = spec_.swiglu_limit}}, work,
                            pair_out);
  };
  return store_.for_each_wave(layer_, lists.wanted(), compute, meanwhile);
}

void MoeBlock::run_shared(StepContext& context, RowCounts counts, const ConstTensorView& x,
                          const TensorView& out) const {
  const Arena::Scope scope(context.stream.scratch());
  const int64_t rows = counts.total();
  const TensorView gate = context.scratch({rows, spec_.shared_intermediate_size});
  const TensorView up = context.scratch({rows, spec_.shared_intermediate_size});
  const TensorView sigmoid_gate = context.scratch({rows, 1});
  const std::array targets = {LinearTarget{shared_gate_, gate}, LinearTarget{shared_up_, up},
                              LinearTarget{shared_expert_gate_, sigmoid_gate}};
  const bool has_gate = !shared_expert_gate_.is_empty();
  context.ops.linear.linear(context.stream, x, counts, std::span(targets).first(has_gate ? 3 : 2));
  context.ops.norm.silu_multiply(context.stream, gate, up, {.limit = spec_.swiglu_limit}, gate);
  const LinearTarget down{shared_down_, out};
  context.ops.linear.linear(context.stream, gate, counts, std::span(&down, 1));
  if (has_gate) context.ops.norm.sigmoid_multiply(context.stream, sigmoid_gate, out);
}

}  // namespace motley
