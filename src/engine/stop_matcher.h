// Finds stop strings in text that arrives in pieces, holding back what may yet become one.
// Thread rule: one owner.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Text that is safe to show. After a match (`matched()`), everything from the stop string on is
  // dropped, and later pushes return nothing.
  std::string push(std::string_view piece);
  // The held-back rest, once the generation ends without a match.
  std::string finish();

  // The stop string that ended the text.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  std::optional<std::string> matched_;
};

}  // namespace motley
