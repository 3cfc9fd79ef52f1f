#include "experts/cache/synthetic_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace motley {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 28;

// std::mt19937_64 is the same everywhere; the library's distributions are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  size_t below(size_t count) { return static_cast<size_t>(unit() * static_cast<double>(count)); }

 private:
  std::mt19937_64 engine_;
};

// Sums of the popularities of ranks 0 .. r.
std::vector<double> popularity_sums(const SyntheticOptions& options) {
  std::vector<double> sums;
  double sum = 0;
  const double skew = options.pattern == RoutePattern::kUniform ? 0 : options.skew;
  for (int rank = 1; rank <= options.experts; ++rank) {
    sum += std::pow(rank, -skew);
    sums.push_back(sum);
  }
  return sums;
}

std::vector<uint16_t> random_order(Dice& dice, int experts) {
  std::vector<uint16_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), uint16_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[dice.below(i)]);
  return order;
}

// Drawing again after a repeat is drawing without replacement. Steep popularity makes repeats many,
// so after some of them the most popular one left is taken.
uint16_t draw(Dice& dice, const std::vector<double>& sums, const std::vector<uint16_t>& order,
              std::vector<int64_t>& seen, int64_t mark) {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    const auto found = std::upper_bound(sums.begin(), sums.end(), dice.unit() * sums.back());
    const auto rank = std::min(static_cast<size_t>(found - sums.begin()), order.size() - 1);
    if (seen[order[rank]] != mark) return order[rank];
  }
  return *std::find_if(order.begin(), order.end(), [&](uint16_t id) { return seen[id] != mark; });
}

}  // namespace

std::string_view route_pattern_name(RoutePattern pattern) {
  switch (pattern) {
    case RoutePattern::kZipf:
      return "zipf";
    case RoutePattern::kUniform:
      return "uniform";
    case RoutePattern::kShift:
      return "shift";
    case RoutePattern::kScan:
      return "scan";
  }
  return "";
}

Result<RouteTrace> make_synthetic_routes(const SyntheticOptions& options) {
  RouteTrace trace;
  trace.shape = {options.layers, options.experts, options.top,
                 fmt::format("synthetic {}", route_pattern_name(options.pattern))};
  MOTLEY_RETURN_IF_ERROR(check_route_shape(trace.shape));
  if (options.tokens < 1 || options.tokens > kMostIds / trace.shape.ids_per_token()) {
    return invalid_argument(fmt::format("{} tokens of {} ids each: 1 to {} are possible",
                                        options.tokens, trace.shape.ids_per_token(),
                                        kMostIds / trace.shape.ids_per_token()));
  }
  Dice dice(options.seed);
  const std::vector<double> sums = popularity_sums(options);
  std::vector<std::vector<uint16_t>> orders(static_cast<size_t>(options.layers));
  std::vector<int64_t> seen(static_cast<size_t>(options.experts), -1);
  trace.roles.assign(static_cast<size_t>(options.tokens), RouteRole::kDecode);
  trace.ids.reserve(trace.roles.size() * static_cast<size_t>(trace.shape.ids_per_token()));
  for (int64_t token = 0; token < options.tokens; ++token) {
    const bool shifts = options.pattern == RoutePattern::kShift &&
                        token % std::max<int64_t>(1, options.shift_tokens) == 0;
    for (int layer = 0; layer < options.layers; ++layer) {
      std::vector<uint16_t>& order = orders[static_cast<size_t>(layer)];
      if (token == 0 || shifts) order = random_order(dice, options.experts);
      for (int64_t rank = 0; rank < options.top; ++rank) {
        const auto turn = static_cast<size_t>((token * options.top + rank) % options.experts);
        const int64_t mark = token * options.layers + layer;
        const uint16_t id = options.pattern == RoutePattern::kScan
                                ? order[turn]
                                : draw(dice, sums, order, seen, mark);
        seen[id] = mark;
        trace.ids.push_back(id);
      }
    }
  }
  return trace;
}

}  // namespace motley
