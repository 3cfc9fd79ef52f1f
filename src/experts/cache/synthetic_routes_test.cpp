#include "experts/cache/synthetic_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace motley {
namespace {

RouteTrace make(const SyntheticOptions& options) {
  return make_synthetic_routes(options).value();
}

std::vector<int> counts(const RouteTrace& trace, int layer, int64_t first, int64_t end) {
  std::vector<int> uses(static_cast<size_t>(trace.shape.experts));
  for (int64_t token = first; token < end; ++token) {
    for (const uint16_t id : trace.of(token, layer)) ++uses[id];
  }
  return uses;
}

int most_used(const std::vector<int>& uses) {
  return static_cast<int>(std::max_element(uses.begin(), uses.end()) - uses.begin());
}

TEST(SyntheticRoutes, ATokenChoosesDistinctExperts) {
  for (const RoutePattern pattern :
       {RoutePattern::kZipf, RoutePattern::kUniform, RoutePattern::kShift, RoutePattern::kScan}) {
    const RouteTrace trace =
        make({.pattern = pattern, .layers = 2, .experts = 12, .top = 12, .tokens = 30, .skew = 6});
    for (int64_t token = 0; token < trace.tokens(); ++token) {
      const auto ids = trace.of(token, 1);
      EXPECT_EQ(std::set<uint16_t>(ids.begin(), ids.end()).size(), 12U);
    }
  }
}

TEST(SyntheticRoutes, ZipfHasItsPopularityAndLayersTheirOwnOrder) {
  const RouteTrace trace = make({.layers = 4, .experts = 64, .top = 1, .tokens = 20000});
  double sum = 0;
  for (int rank = 1; rank <= 64; ++rank) sum += 1.0 / rank;
  std::set<int> favourites;
  for (int layer = 0; layer < 4; ++layer) {
    std::vector<int> uses = counts(trace, layer, 0, trace.tokens());
    favourites.insert(most_used(uses));
    std::sort(uses.rbegin(), uses.rend());
    EXPECT_NEAR(uses[0], 20000 / sum, 400);
    EXPECT_NEAR(uses[3], 20000 / sum / 4, 200);
  }
  EXPECT_GT(favourites.size(), 1U);
}

TEST(SyntheticRoutes, ShiftChangesWhoIsPopular) {
  const RouteTrace trace = make({.pattern = RoutePattern::kShift,
                                 .layers = 1,
                                 .experts = 64,
                                 .top = 2,
                                 .tokens = 2000,
                                 .shift_tokens = 1000});
  const int early = most_used(counts(trace, 0, 0, 500));
  EXPECT_EQ(most_used(counts(trace, 0, 500, 1000)), early);
  EXPECT_NE(most_used(counts(trace, 0, 1000, 2000)), early);
}

TEST(SyntheticRoutes, ScanTakesTurns) {
  const RouteTrace trace =
      make({.pattern = RoutePattern::kScan, .layers = 1, .experts = 10, .top = 4, .tokens = 5});
  for (const int uses : counts(trace, 0, 0, 5)) EXPECT_EQ(uses, 2);
}

TEST(SyntheticRoutes, TheSeedDecides) {
  const auto ids = [](uint64_t seed) { return make({.tokens = 20, .seed = seed}).ids; };
  EXPECT_EQ(ids(3), ids(3));
  EXPECT_NE(ids(3), ids(4));
}

TEST(SyntheticRoutes, SizesAreChecked) {
  EXPECT_FALSE(make_synthetic_routes({.experts = 4, .top = 5}).is_ok());
  EXPECT_FALSE(make_synthetic_routes({.tokens = 0}).is_ok());
  EXPECT_FALSE(make_synthetic_routes({.tokens = int64_t{1} << 40}).is_ok());
}

}  // namespace
}  // namespace motley
