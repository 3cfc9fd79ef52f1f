// Tokens that are found in the text before any other step: "<|im_start|>" and the like.
//
// Leftmost longest match in two passes, as in Hugging Face tokenizers (added_vocabulary.rs): first
// the tokens with normalized = false in the raw text, then the others, normalised, in the
// normalised text.
// Ownership: owns copies. Thread rule: immutable after build.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/token_id.h"

namespace motley {

inline constexpr size_t kMaxAddedTokens = 65536;
inline constexpr size_t kMaxAddedTokenBytes = 512;

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // skipped when decoding for people; see EncodeOptions
  bool normalized = false;   // matched after normalisation
  bool lstrip = false;       // takes white space on its left along
  bool rstrip = false;       // and on its right
  bool single_word = false;  // matches only between non-word characters
};

// Finds one set of tokens in a text. O(n * longest token) at worst, O(n) in practice.
class AddedTokenMatcher {
 public:
  // A piece of the text: a token, or text between tokens when `token` is null.
  struct Piece {
    std::string_view text;
    const AddedToken* token = nullptr;
  };

  // Adds a token that is matched as `content`. REQUIRES: not empty; false when it is there already.
  bool add(std::string_view content, size_t token_index);

  // Calls `visit` for each piece in order. `tokens` is the list that the indices point into.
  // With `skip_special` special tokens are not matched and stay text.
  Status split(std::string_view text, const std::vector<AddedToken>& tokens, bool skip_special,
               FunctionRef<Status(const Piece&)> visit) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    unsigned char byte = 0;
    int32_t token = -1;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
  };
  struct Found {
    size_t length = 0;
    int32_t token = -1;
  };

  int32_t find_child(int32_t node, unsigned char byte) const;
  Found longest_match(std::string_view text, size_t at) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);  // a trie; node 0 is the root
  std::array<int32_t, 256> roots_ = make_roots();

  static std::array<int32_t, 256> make_roots();
};

}  // namespace motley
