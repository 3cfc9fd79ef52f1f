// Byte-level byte pair encoding: bytes of one word to token ids.
//
// Source: the "BPE" model of Hugging Face tokenizers. Among the adjacent pairs that have a merge,
// the one of lowest rank is merged first, the leftmost of equals; until none is left.
// Ownership: owns its tables. Thread rule: immutable; a Scratch belongs to one thread at a time.
// Complexity: O(n log n) in the bytes of the word.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_id.h"

namespace motley {

// One merge: `left` and `right`, adjacent, become `merged`. Rank = place in the list.
struct BpeMerge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

// A token of the model and the bytes it stands for.
struct BpeToken {
  std::string_view bytes;
  TokenId id = 0;
};

class BpeModel {
 public:
  struct Scratch {
    std::vector<TokenId> ids;
    std::vector<uint32_t> ranks;  // of the pair that starts at each place
    std::vector<uint32_t> next;
    std::vector<uint32_t> previous;
    std::vector<uint64_t> heap;
  };

  BpeModel() = default;

  // `byte_ids`: the token of every single byte, -1 where there is none.
  // `tokens` need only live through the call. With `ignore_merges` a word that is a token is that
  // token, whatever the merges say. The last of repeated merges counts, as in the reference.
  BpeModel(const std::array<TokenId, 256>& byte_ids, const std::vector<BpeMerge>& merges,
           const std::vector<BpeToken>& tokens, bool ignore_merges);

  // Appends the ids of `word`. REQUIRES: every byte has a token; under 2^31 bytes.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct MergeSlot {
    uint64_t pair = kEmptyPair;
    uint32_t rank = 0;
    TokenId merged = 0;
  };
  struct WordSlot {
    uint64_t offset = 0;
    uint32_t length = 0;
    TokenId id = -1;
  };
  static constexpr uint64_t kEmptyPair = ~uint64_t{0};

  const MergeSlot* find_merge(TokenId left, TokenId right) const;
  uint32_t rank_of(TokenId left, TokenId right) const;
  TokenId find_word(std::string_view word) const;
  void insert_word(const BpeToken& token);
  void merge_bytes(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void merge_short(Scratch& scratch, std::vector<TokenId>& out) const;
  void merge_long(Scratch& scratch, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_{};
  std::vector<MergeSlot> merges_;  // open addressing, size a power of two
  std::vector<WordSlot> words_;    // the same; words whose encoding is one known token
  std::string word_bytes_;
  size_t longest_word_ = 0;
};

}  // namespace motley
