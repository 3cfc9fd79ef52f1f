#include "engine/stop_matcher.h"

#include <algorithm>

namespace motley {
namespace {

// Length of the longest end of `text` that begins `stop`, shorter than `stop` itself.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  pending_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop);
    if (at < first) {
      first = at;
      matched_ = stop;
    }
  }
  if (matched_) {
    std::string shown = pending_.substr(0, first);
    pending_.clear();
    return shown;
  }
  size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, partial_match(pending_, stop));
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return shown;
}

std::string StopMatcher::finish() {
  std::string rest = std::move(pending_);
  pending_.clear();
  return rest;
}

}  // namespace motley
