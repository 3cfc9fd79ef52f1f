// The raw content of a tokenizer.json: the two large tables as vectors, the rest as a tree.
//
// Source of the format: Hugging Face tokenizers serialization, version "1.0".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/token_id.h"

namespace motley {

inline constexpr size_t kMaxTokenizerJsonBytes = 256u << 20;
inline constexpr size_t kMaxMerges = 4'000'000;
inline constexpr size_t kMaxTokenBytes = 4096;

struct RawTokenizer {
  std::vector<std::pair<std::string, TokenId>> vocab;       // model.vocab, in file order
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges, by rank
  nlohmann::json rest;                                      // everything else
};

// Checks sizes, depth, UTF-8, id range, and that both tables exist; not their consistency.
Result<RawTokenizer> read_tokenizer_json(std::string_view json);

}  // namespace motley
