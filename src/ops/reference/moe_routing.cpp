#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

// The `count` best, best first; ties to the lower index.
std::vector<int32_t> choose(const double* logits, int64_t experts, int count) {
  std::vector<int32_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [logits](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

void route_softmax(Stream&, const ConstTensorView& logits, RoutingParams params,
                   const ConstTensorView& forced, const Routing& routing) {
  const int count = params.experts_per_token;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const double* row = logits.row<double>(r);
    const bool is_forced = !forced.is_empty() && forced.row<int32_t>(r)[0] >= 0;
    std::vector<int32_t> chosen =
        is_forced ? std::vector<int32_t>(forced.row<int32_t>(r), forced.row<int32_t>(r) + count)
                  : choose(row, logits.cols(), count);
    std::sort(chosen.begin(), chosen.end());
    // The softmax over the chosen alone is p / sum of the chosen p.
    double highest = -INFINITY;
    double sum = 0;
    if (params.normalise) {
      for (const int32_t e : chosen) highest = std::max(highest, row[e]);
      for (const int32_t e : chosen) sum += std::exp(row[e] - highest);
    } else {
      highest = *std::max_element(row, row + logits.cols());
      for (int64_t e = 0; e < logits.cols(); ++e) sum += std::exp(row[e] - highest);
    }
    for (int slot = 0; slot < count; ++slot) {
      const int32_t expert = chosen[static_cast<size_t>(slot)];
      routing.experts.row<int32_t>(r)[slot] = expert;
      routing.weights.row<double>(r)[slot] = std::exp(row[expert] - highest) / sum;
    }
  }
}

// Experts outside of the kept groups become -infinity.
void keep_best_groups(const SigmoidRoutingParams& params, std::vector<double>* choice) {
  const auto size = std::ssize(*choice) / params.groups;
  std::vector<double> scores;
  for (int group = 0; group < params.groups; ++group) {
    const double* begin = choice->data() + group * size;
    const int best = static_cast<int>(std::min<std::ptrdiff_t>(2, size));
    double sum = 0;
    for (const int32_t e : choose(begin, size, best)) sum += begin[e];
    scores.push_back(sum);
  }
  const std::vector<int32_t> kept = choose(scores.data(), params.groups, params.kept_groups);
  for (int group = 0; group < params.groups; ++group) {
    if (std::find(kept.begin(), kept.end(), group) != kept.end()) continue;
    std::fill_n(choice->begin() + group * size, size, -INFINITY);
  }
}

void route_sigmoid(Stream&, const ConstTensorView& logits, const ConstTensorView& bias,
                   SigmoidRoutingParams params, const ConstTensorView& forced,
                   const Routing& routing) {
  const int count = params.experts_per_token;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const double* row = logits.row<double>(r);
    std::vector<double> choice;
    for (int64_t e = 0; e < logits.cols(); ++e) {
      choice.push_back(reference_sigmoid(row[e]) + double{bias.as<float>()[e]});
    }
    if (params.groups > 1) keep_best_groups(params, &choice);
    const bool is_forced = !forced.is_empty() && forced.row<int32_t>(r)[0] >= 0;
    std::vector<int32_t> chosen =
        is_forced ? std::vector<int32_t>(forced.row<int32_t>(r), forced.row<int32_t>(r) + count)
                  : choose(choice.data(), logits.cols(), count);
    std::sort(chosen.begin(), chosen.end());
    double sum = 1e-20;
    for (const int32_t e : chosen) sum += reference_sigmoid(row[e]);
    for (int slot = 0; slot < count; ++slot) {
      const int32_t expert = chosen[static_cast<size_t>(slot)];
      routing.experts.row<int32_t>(r)[slot] = expert;
      routing.weights.row<double>(r)[slot] =
          reference_sigmoid(row[expert]) / (params.normalise ? sum : 1.0) * double{params.scale};
    }
  }
}

void combine(Stream&, const ConstTensorView& pair_out, const Routing& routing,
             const ConstTensorView& shared, const TensorView& y) {
  const int64_t slots = routing.experts.cols();
  for (int64_t r = 0; r < y.rows(); ++r) {
    for (int64_t i = 0; i < y.cols(); ++i) {
      double sum = 0;
      for (int64_t slot = 0; slot < slots; ++slot) {
        sum += routing.weights.row<double>(r)[slot] * pair_out.row<double>(r * slots + slot)[i];
      }
      y.row<double>(r)[i] = shared.is_empty() ? sum : sum + shared.row<double>(r)[i];
    }
  }
}

}  // namespace

decltype(MoeOps::route_softmax) reference_route_softmax() {
  return route_softmax;
}

decltype(MoeOps::route_sigmoid) reference_route_sigmoid() {
  return route_sigmoid;
}

decltype(MoeOps::combine) reference_combine() {
  return combine;
}

}  // namespace motley
