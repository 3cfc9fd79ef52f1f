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
    std::copy_n(forced, count, chosen);
    std::sort(chosen, chosen + count);
    MOTLEY_CHECK(chosen[0] >= 0 && chosen[count - 1] < experts, "forced expert out of range");
  } else {
    choose_experts(logits, experts, count, chosen);
  }
  weigh_experts(kernels, logits, experts, params, chosen, exponentials, weights);
}

}  // namespace

void cpu_route_softmax(const CpuKernels& kernels, Stream& stream, const ConstTensorView& logits,
                       RoutingParams params, const ConstTensorView& forced,
                       const Routing& routing) {
  const int64_t experts = logits.cols();
  MOTLEY_CHECK(params.experts_per_token > 0 && params.experts_per_token <= experts,
               "between one and all experts per token");
  MOTLEY_CHECK(routing.experts.cols() == params.experts_per_token &&
                   routing.weights.cols() == params.experts_per_token,
               "one slot per chosen expert");
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
