#include "text/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace motley {
namespace {

// The character that ends at `end`. REQUIRES: valid UTF-8, end > 0.
Utf8Step character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return next_utf8(text.substr(begin, end - begin));
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(character_before(text, begin).code_point)) return true;
  return end < text.size() && is_word_character(next_utf8(text.substr(end)).code_point);
}

size_t strip_left(std::string_view text, size_t begin, size_t stop) {
  while (begin > stop) {
    const Utf8Step step = character_before(text, begin);
    if (!is_white_space(step.code_point)) break;
    begin -= step.length;
  }
  return begin;
}

// Finds the end of white space; remembers the last run, since tokens that are white space
// themselves may ask about one run many times.
class RightStripper {
 public:
  size_t strip(std::string_view text, size_t end) {
    if (end >= run_begin_ && end < run_end_) return run_end_;
    run_begin_ = end;
    while (end < text.size()) {
      const Utf8Step step = next_utf8(text.substr(end));
      if (!is_white_space(step.code_point)) break;
      end += step.length;
    }
    run_end_ = end;
    return end;
  }

 private:
  size_t run_begin_ = 0;
  size_t run_end_ = 0;
};

}  // namespace

std::array<int32_t, 256> AddedTokenMatcher::make_roots() {
  std::array<int32_t, 256> roots{};
  roots.fill(-1);
  return roots;
}

int32_t AddedTokenMatcher::find_child(int32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  int32_t child = nodes_[static_cast<size_t>(node)].first_child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

bool AddedTokenMatcher::add(std::string_view content, size_t token_index) {
  MOTLEY_CHECK(!content.empty(), "an added token needs text");
  int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = find_child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      if (node == 0) {
        roots_[byte] = child;
      } else {
        Node& parent = nodes_[static_cast<size_t>(node)];
        fresh.next_sibling = parent.first_child;
        parent.first_child = child;
      }
      nodes_.push_back(fresh);
    }
    node = child;
  }
  Node& last = nodes_[static_cast<size_t>(node)];
  if (last.token >= 0) return false;
  last.token = static_cast<int32_t>(token_index);
  return true;
}

AddedTokenMatcher::Found AddedTokenMatcher::longest_match(std::string_view text, size_t at) const {
  Found found;
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = find_child(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) found = {i + 1 - at, token};
  }
  return found;
}

Status AddedTokenMatcher::split(std::string_view text, const std::vector<AddedToken>& tokens,
                                bool skip_special, FunctionRef<Status(const Piece&)> visit) const {
  size_t done = 0;  // everything before has been visited
  RightStripper stripper;
  size_t at = 0;
  while (at < text.size() && !empty()) {
    if (roots_[static_cast<unsigned char>(text[at])] < 0) {
      ++at;
      continue;
    }
    const Found found = longest_match(text, at);
    if (found.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens[static_cast<size_t>(found.token)];
    size_t begin = at;
    size_t end = at + found.length;
    at = end;  // a discarded match is passed over whole, as in the reference
    if (skip_special && token.special) continue;
    if (token.single_word && touches_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(strip_left(text, begin, done), done);
    if (token.rstrip) end = stripper.strip(text, end);
    if (begin >= end) continue;  // an earlier token took all of it along
    if (begin > done) MOTLEY_RETURN_IF_ERROR(visit({text.substr(done, begin - done), nullptr}));
    MOTLEY_RETURN_IF_ERROR(visit({text.substr(begin, end - begin), &token}));
    done = end;
  }
  if (done < text.size()) return visit({text.substr(done), nullptr});
  return Status::ok();
}

}  // namespace motley
