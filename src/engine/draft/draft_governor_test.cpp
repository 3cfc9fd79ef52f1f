#include "engine/draft/draft_governor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace motley {
namespace {

// A machine whose steps cost base + per_draft * k, and a draft layer of one acceptance.
struct Machine {
  double base_s = 0;
  double per_draft_s = 0;
  double acceptance = 0;
  double bytes_per_draft = 0;  // read for nothing but the drafts
  double wait_per_byte_s = 0;

  DraftCost cost(int drafts) const {
    const double bytes = bytes_per_draft * (1 + drafts);
    const double wait_s = bytes * wait_per_byte_s;
    return {
        .seconds = base_s + per_draft_s * drafts + wait_s, .wait_s = wait_s, .read_bytes = bytes};
  }
  DraftStats stats(int drafts, uint64_t* random) const {
    DraftStats result;
    for (int place = 0; place < drafts; ++place) {
      *random = *random * 6364136223846793005u + 1442695040888963407u;
      const bool is_right = static_cast<double>(*random >> 11) * 0x1p-53 < acceptance;
      result.count(place, is_right);
      if (!is_right) break;
    }
    return result;
  }
};

// How often each number was chosen in the last 300 of 600 steps.
std::map<int, int> choices(const Machine& machine, int most) {
  DraftGovernor governor;
  uint64_t random = 7;
  std::map<int, int> chosen;
  for (int step = 0; step < 600; ++step) {
    const int drafts = governor.choose(most);
    EXPECT_LE(drafts, most);
    governor.note_cost(drafts, machine.cost(drafts));
    governor.note_stats(machine.stats(drafts, &random));
    if (step >= 300) ++chosen[drafts];
  }
  return chosen;
}

int usual(const std::map<int, int>& chosen) {
  return std::max_element(chosen.begin(), chosen.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

TEST(DraftGovernor, FreeDraftsAreAllMade) {
  const std::map<int, int> chosen =
      choices({.base_s = 1, .per_draft_s = 0.01, .acceptance = 0.95}, 5);
  EXPECT_EQ(usual(chosen), 5);
  EXPECT_GT(chosen.at(5), 250);
}

TEST(DraftGovernor, DraftsThatCostAStepAreNot) {
  EXPECT_EQ(usual(choices({.base_s = 1, .per_draft_s = 1.1, .acceptance = 0.9}, 8)), 0);
  EXPECT_EQ(usual(choices({.base_s = 1, .per_draft_s = 0.1, .acceptance = 0.02}, 8)), 0);
}

TEST(DraftGovernor, SomeArePickedInBetween) {
  // Tokens 1, 1.7, 2.19, 2.53, 2.77 over costs 1, 1.25, 1.5, 1.75, 2: best at 2.
  const int found = usual(choices({.base_s = 1, .per_draft_s = 0.25, .acceptance = 0.7}, 8));
  EXPECT_GE(found, 1);
  EXPECT_LE(found, 3);
}

// The same computation, and drafts whose experts must be read: bytes decide.
TEST(DraftGovernor, ReadsCountByWhatTheyCostInWaiting) {
  Machine machine{.base_s = 0.01, .per_draft_s = 0.001, .acceptance = 0.8, .bytes_per_draft = 1e8};
  machine.wait_per_byte_s = 1e-12;  // a drive that is never waited for
  EXPECT_GE(usual(choices(machine, 5)), 3);
  machine.wait_per_byte_s = 1e-9;
  EXPECT_EQ(usual(choices(machine, 5)), 0);
}

TEST(DraftGovernor, OneSlowReadDecidesNothing) {
  DraftGovernor governor;
  for (int i = 0; i < 20; ++i) {
    governor.note_cost(0, {.seconds = 1, .wait_s = 0.5, .read_bytes = 100});
    governor.note_cost(3, {.seconds = 1.2, .wait_s = 0.5, .read_bytes = 100});
  }
  const double before = governor.seconds(3) / governor.seconds(0);
  governor.note_cost(3, {.seconds = 10, .wait_s = 9.3, .read_bytes = 100});
  EXPECT_NEAR(governor.seconds(3) / governor.seconds(0), before, 0.2);
}

TEST(DraftGovernor, EachNumberIsTriedAtTheStart) {
  DraftGovernor governor;
  std::map<int, int> tried;
  for (int step = 0; step < 12; ++step) ++tried[governor.choose(6)];
  EXPECT_EQ(tried, (std::map<int, int>{{0, 3}, {1, 3}, {3, 3}, {6, 3}}));
}

TEST(DraftGovernor, UnmeasuredNumbersLieBetweenTheirNeighbours) {
  DraftGovernor governor;
  EXPECT_EQ(governor.seconds(2), 0);
  governor.note_cost(1, {.seconds = 2});
  EXPECT_EQ(governor.seconds(5), 2);
  governor.note_cost(5, {.seconds = 4});
  EXPECT_EQ(governor.seconds(3), 3);
  EXPECT_EQ(governor.seconds(7), 5);
  EXPECT_EQ(governor.seconds(0), 2);
  EXPECT_NE(governor.summary(2).find("ms a token"), std::string::npos);
}

TEST(DraftGovernor, FewerAreAllowedAtAnyTime) {
  DraftGovernor governor;
  for (int step = 0; step < 100; ++step) EXPECT_LE(governor.choose(step % 3), step % 3);
}

TEST(DraftStats, TextAndJson) {
  DraftStats stats;
  EXPECT_EQ(draft_text(stats), "drafts   none were verified");
  EXPECT_EQ(draft_json(0, stats), "null");
  for (int i = 0; i < 4; ++i) stats.count(0, i != 0);
  for (int i = 0; i < 3; ++i) stats.count(1, i != 0);
  stats.by_accepted[0] = 1;
  stats.by_accepted[1] = 1;
  stats.by_accepted[2] = 2;
  EXPECT_EQ(draft_text(stats), "drafts   4 steps, 2.25 tokens each; accepted 0.75 0.67 (of 4 3)");
  EXPECT_EQ(draft_json(2, stats),
            "{\"most\": 2, \"steps\": 4, \"tried\": [4, 3], \"accepted\": [3, 2], "
            "\"acceptance\": [0.7500, 0.6667], \"steps_by_accepted\": [1, 1, 2]}");
  DraftStats twice = stats;
  twice += stats;
  EXPECT_EQ(twice.steps(), 8);
  EXPECT_EQ(twice.accepted_total(), 10);
  EXPECT_EQ(twice.places(), 2);
}

}  // namespace
}  // namespace motley
