#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// The `count` largest logits, ties to the lower index, in `chosen` in ascending index. Always
// `count` different experts, whatever the logits are.
void choose_experts(const float* logits, int64_t experts, int64_t count, int32_t* chosen) {
  int64_t held = 0;  // chosen[0 .. held) ordered by logit, descending
  for (int64_t e = 0; e < experts; ++e) {
    if (held == count && !(logits[e] > logits[chosen[held - 1]])) continue;
    int64_t slot = held < count ? held++ : held - 1;
    for (; slot > 0 && logits[e] > logits[chosen[slot - 1]]; --slot) {
      chosen[slot] = chosen[slot - 1];
    }
    chosen[slot] = static_cast<int32_t>(e);
  }
  std::sort(chosen, chosen + count);
}

void take_forced(const int32_t* forced, int64_t count, int64_t experts, int32_t* chosen) {
  std::copy_n(forced, count, chosen);
  std::sort(chosen, chosen + count);
  MOTLEY_CHECK(chosen[0] >= 0 && chosen[count - 1] < experts, "forced expert out of range");
}

// exponentials holds room for `experts` values.
void weigh_experts(const CpuKernels& kernels, const float* logits, int64_t experts,
                   RoutingParams params, const int32_t* chosen, float* exponentials,
                   float* weights) {
  const int64_t count = params.experts_per_token;
  // The softmax over the chosen alone is p / sum of the chosen p.
  const int64_t terms = params.normalise ? count : experts;
  float highest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < terms; ++i) {
    exponentials[i] = logits[params.normalise ? chosen[i] : i];
    highest = std::max(highest, exponentials[i]);
  }
  for (int64_t i = 0; i < terms; ++i) exponentials[i] -= highest;
  kernels.exp(exponentials, terms, exponentials);
  float sum = 0;
  for (int64_t i = 0; i < terms; ++i) sum += exponentials[i];
  for (int64_t slot = 0; slot < count; ++slot) {
    weights[slot] = exponentials[params.normalise ? slot : chosen[slot]] / sum;
  }
}

void route_row(const CpuKernels& kernels, const float* logits, int64_t experts,
               RoutingParams params, const int32_t* forced, float* exponentials, int32_t* chosen,
               float* weights) {
  const int64_t count = params.experts_per_token;
  if (forced != nullptr && forced[0] >= 0) {
    take_forced(forced, count, experts, chosen);
  } else {
    choose_experts(logits, experts, count, chosen);
  }
  weigh_experts(kernels, logits, experts, params, chosen, exponentials, weights);
}

// Experts outside of the kept groups become -infinity. `scores` holds room for all groups.
void keep_best_groups(const SigmoidRoutingParams& params, int64_t experts, float* choice,
                      float* scores, int32_t* kept) {
  const int64_t size = experts / params.groups;
  for (int64_t group = 0; group < params.groups; ++group) {
    const float* own = choice + group * size;
    int32_t best[2];
    choose_experts(own, size, std::min<int64_t>(2, size), best);
    scores[group] = size > 1 ? own[best[0]] + own[best[1]] : own[best[0]];
  }
  choose_experts(scores, params.groups, params.kept_groups, kept);
  int64_t next = 0;
  for (int64_t group = 0; group < params.groups; ++group) {
    if (next < params.kept_groups && kept[next] == group) {
      ++next;
      continue;
    }
    std::fill_n(choice + group * size, size, -std::numeric_limits<float>::infinity());
  }
}

// Memory of one worker: sigmoids and choices of all experts, scores and numbers of groups.
struct SigmoidScratch {
  float* sigmoids;
  float* choice;
  float* group_scores;
  int32_t* kept;
};

void route_sigmoid_row(const CpuKernels& kernels, const float* logits, int64_t experts,
                       const float* bias, SigmoidRoutingParams params, const int32_t* forced,
                       const SigmoidScratch& scratch, int32_t* chosen, float* weights) {
  const int64_t count = params.experts_per_token;
  kernels.sigmoid(logits, experts, scratch.sigmoids);
  if (forced != nullptr && forced[0] >= 0) {
    take_forced(forced, count, experts, chosen);
  } else {
    for (int64_t e = 0; e < experts; ++e) scratch.choice[e] = scratch.sigmoids[e] + bias[e];
    if (params.groups > 1) {
      keep_best_groups(params, experts, scratch.choice, scratch.group_scores, scratch.kept);
    }
    choose_experts(scratch.choice, experts, count, chosen);
  }
  float sum = 1e-20f;
  for (int64_t slot = 0; slot < count; ++slot) sum += scratch.sigmoids[chosen[slot]];
  for (int64_t slot = 0; slot < count; ++slot) {
    weights[slot] = scratch.sigmoids[chosen[slot]] / (params.normalise ? sum : 1.0f) * params.scale;
  }
}

void check_routing(int64_t experts, int experts_per_token, const Routing& routing) {
  MOTLEY_CHECK(experts_per_token > 0 && experts_per_token <= experts,
               "between one and all experts per token");
  MOTLEY_CHECK(
      routing.experts.cols() == experts_per_token && routing.weights.cols() == experts_per_token,
      "one slot per chosen expert");
}

}  // namespace

void cpu_route_softmax(const CpuKernels& kernels, Stream& stream, const ConstTensorView& logits,
                       RoutingParams params, const ConstTensorView& forced,
                       const Routing& routing) {
  const int64_t experts = logits.cols();
  check_routing(experts, params.experts_per_token, routing);
  const Arena::Scope scope(stream.scratch());
  auto* exponentials = stream.scratch().allocate<float>(stream.threads().size() * experts);
  stream.threads().parallel_for(
      logits.rows(), row_grain(4 * experts), [&](int worker, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          route_row(kernels, logits.row<float>(r), experts, params,
                    forced.is_empty() ? nullptr : forced.row<int32_t>(r),
                    exponentials + worker * experts, routing.experts.row<int32_t>(r),
                    routing.weights.row<float>(r));
        }
      });
}

void cpu_route_sigmoid(const CpuKernels& kernels, Stream& stream, const ConstTensorView& logits,
                       const ConstTensorView& bias, SigmoidRoutingParams params,
                       const ConstTensorView& forced, const Routing& routing) {
  const int64_t experts = logits.cols();
  check_routing(experts, params.experts_per_token, routing);
  MOTLEY_CHECK(bias.shape.elements() == experts && params.groups >= 1 &&
                   experts % params.groups == 0 && params.kept_groups >= 1 &&
                   params.kept_groups <= params.groups,
               "a bias per expert, and equal groups");
  const Arena::Scope scope(stream.scratch());
  const int64_t workers = stream.threads().size();
  const int64_t floats = 2 * experts + params.groups;
  auto* numbers = stream.scratch().allocate<float>(workers * floats);
  auto* kept = stream.scratch().allocate<int32_t>(workers * params.kept_groups);
  stream.threads().parallel_for(
      logits.rows(), row_grain(4 * experts), [&](int worker, int64_t begin, int64_t end) {
        float* own = numbers + worker * floats;
        const SigmoidScratch scratch{own, own + experts, own + 2 * experts,
                                     kept + worker * params.kept_groups};
        for (int64_t r = begin; r < end; ++r) {
          route_sigmoid_row(kernels, logits.row<float>(r), experts, bias.as<float>(), params,
                            forced.is_empty() ? nullptr : forced.row<int32_t>(r), scratch,
                            routing.experts.row<int32_t>(r), routing.weights.row<float>(r));
        }
      });
}

void cpu_combine(const CpuKernels& kernels, Stream& stream, const ConstTensorView& pair_out,
                 const Routing& routing, const ConstTensorView& shared, const TensorView& y) {
  const int64_t slots = routing.weights.cols();
  MOTLEY_CHECK(pair_out.rows() == y.rows() * slots && pair_out.cols() == y.cols(),
               "one pair per row and slot");
  stream.threads().parallel_for(
      y.rows(), row_grain(slots * y.cols()), [&](int, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          kernels.combine(
              pair_out.row<float>(r * slots), pair_out.row_stride, routing.weights.row<float>(r),
              slots, shared.is_empty() ? nullptr : shared.row<float>(r), y.cols(), y.row<float>(r));
        }
      });
}

}  // namespace motley
