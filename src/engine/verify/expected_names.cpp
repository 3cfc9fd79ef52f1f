#include "engine/verify/expected_names.h"

#include <charconv>

namespace motley {
namespace {

struct KnownName {
  std::string_view before;  // the index, where there is one
  std::string_view after;   // empty: no index
  ExpectedKind kind;
};

constexpr KnownName kNames[] = {
    {"ids", "", ExpectedKind::kIds},
    {"logits", "", ExpectedKind::kLogits},
    {"argmax", "", ExpectedKind::kArgmax},
    {"argmax_margin", "", ExpectedKind::kArgmaxMargin},
    {"layer.", ".out", ExpectedKind::kLayerOut},
    {"router.", ".experts", ExpectedKind::kRouterExperts},
    {"router.", ".gap", ExpectedKind::kRouterGap},
    {"indexer.", ".selected", ExpectedKind::kIndexerSelected},
    {"indexer.", ".gap", ExpectedKind::kIndexerGap},
    {"mtp.next_token", "", ExpectedKind::kDraftToken},
    {"mtp.logits", "", ExpectedKind::kDraftLogits},
    {"mtp.chain_logits", "", ExpectedKind::kDraftChainLogits},
    {"greedy", "", ExpectedKind::kGreedy},
    {"greedy_margin", "", ExpectedKind::kGreedyMargin},
    {"nll", "", ExpectedKind::kLosses},
};

// Digits only, without leading zeros: a layer has one name.
std::optional<size_t> parse_index(std::string_view text) {
  size_t index = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || stop != end || (text.size() > 1 && text[0] == '0')) return {};
  return index;
}

}  // namespace

std::optional<ExpectedName> parse_expected_name(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos) return {};
  const std::string_view label = name.substr(0, dot);
  const std::string_view rest = name.substr(dot + 1);
  for (const KnownName& known : kNames) {
    if (known.after.empty()) {
      if (rest == known.before) return ExpectedName{label, known.kind, 0};
      continue;
    }
    const size_t around = known.before.size() + known.after.size();
    if (rest.size() <= around || !rest.starts_with(known.before) || !rest.ends_with(known.after)) {
      continue;
    }
    const auto index = parse_index(rest.substr(known.before.size(), rest.size() - around));
    if (index.has_value()) return ExpectedName{label, known.kind, *index};
  }
  return {};
}

bool holds_integers(ExpectedKind kind) {
  switch (kind) {
    case ExpectedKind::kIds:
    case ExpectedKind::kArgmax:
    case ExpectedKind::kRouterExperts:
    case ExpectedKind::kIndexerSelected:
    case ExpectedKind::kDraftToken:
    case ExpectedKind::kGreedy:
      return true;
    default:
      return false;
  }
}

bool is_compared(ExpectedKind kind) {
  switch (kind) {
    case ExpectedKind::kIds:
    case ExpectedKind::kArgmaxMargin:
    case ExpectedKind::kRouterGap:
    case ExpectedKind::kIndexerGap:
    case ExpectedKind::kGreedyMargin:
      return false;
    default:
      return true;
  }
}

}  // namespace motley
