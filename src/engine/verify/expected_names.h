// The tensor names that a file of expected outputs may have: LABEL.REST, table in docs/verify.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace motley {

enum class ExpectedKind {
  kIds,
  kLogits,
  kArgmax,
  kArgmaxMargin,
  kLayerOut,
  kRouterExperts,
  kRouterGap,
  kIndexerSelected,
  kIndexerGap,
  kDraftToken,
  kDraftLogits,
  kDraftChainLogits,
  kGreedy,
  kGreedyMargin,
  kLosses,
};

struct ExpectedName {
  std::string_view label;  // of the name given: not empty, without a dot
  ExpectedKind kind = ExpectedKind::kIds;
  size_t index = 0;  // I of layer.I, router.I and indexer.I
};

// Nothing for a name that no part of the verification knows.
std::optional<ExpectedName> parse_expected_name(std::string_view name);

// Token ids, expert numbers and positions; the others are real numbers.
bool holds_integers(ExpectedKind kind);

// False for what only serves a comparison: token ids, margins and gaps.
bool is_compared(ExpectedKind kind);

}  // namespace motley
