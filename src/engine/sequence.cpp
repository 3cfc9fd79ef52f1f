#include "engine/sequence.h"

#include <algorithm>

#include "base/check.h"

namespace motley {

SyncReport Sequence::sync(std::span<const int32_t> tokens) {
  MOTLEY_CHECK(!tokens.empty(), "a sequence needs at least one token");
  const auto computed = static_cast<size_t>(state_.length());
  SyncReport report;
  if (broken_) {
    report.reason = "the last step failed";
  } else if (computed == 0) {
    report.reason = "new sequence";
  } else if (tokens.size() < computed ||
             !std::equal(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(computed),
                         tokens.begin())) {
    report.reason = "the tokens diverge from the computed ones";
  } else if (tokens.size() == computed) {
    report.reason = "nothing new to compute, and the last state cannot be stepped back";
  } else {
    report.decision = SyncDecision::kExtend;
    report.reused_tokens = static_cast<int64_t>(computed);
    report.reason = "extends the computed tokens";
  }
  // The newest draft row may have been made with another next token.
  const bool same_next = tokens.size() > computed && tokens_.size() > computed &&
                         tokens[computed] == tokens_[computed];
  if (report.decision == SyncDecision::kExtend && !same_next) {
    state_.set_draft_length(std::min(state_.draft_length(), state_.length() - 1));
  }
  if (report.decision == SyncDecision::kRebuild) {
    state_.clear();
    broken_ = false;
  }
  tokens_.assign(tokens.begin(), tokens.end());
  report.pending_tokens = static_cast<int64_t>(tokens.size()) - report.reused_tokens;
  return report;
}

}  // namespace motley
