// The inside of a Tokenizer; shared by tokenizer.cpp and its loader only.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/token_id.h"
#include "text/tokenizer.h"

namespace motley {

struct TokenEntry {
  uint64_t offset = 0;  // into Tables::bytes
  uint32_t length = 0;
  bool exists = false;
  bool special = false;
  bool added = false;
};

struct Tokenizer::Tables {
  std::vector<TokenEntry> entries;  // by id
  std::string bytes;
  std::unordered_map<std::string, TokenId> ids_by_spelling;
  std::vector<AddedToken> added;
  AddedTokenMatcher raw_matcher;         // added tokens with normalized = false
  AddedTokenMatcher normalized_matcher;  // the others, in normalised form
  bool normalize_nfc = false;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<TokenId> prefix;  // TemplateProcessing, before and after the text
  std::vector<TokenId> suffix;

  bool has(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < entries.size() &&
           entries[static_cast<size_t>(id)].exists;
  }
};

}  // namespace motley
