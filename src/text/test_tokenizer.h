// A small tokenizer for tests and fuzz targets: all 256 bytes, a few merges, some added tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"

namespace motley {

using TestMerges = std::vector<std::pair<std::string, std::string>>;

// Byte b has id b; merge i makes token 256 + i. Parts are given as bytes, not as spellings.
inline nlohmann::json test_tokenizer_json(const TestMerges& merges = {}) {
  using Json = nlohmann::json;
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[spelling_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  Json merge_list = Json::array();
  int next = 256;
  for (const auto& [left, right] : merges) {
    merge_list.push_back({spelling_of_bytes(left), spelling_of_bytes(right)});
    const std::string merged = spelling_of_bytes(left + right);
    if (!vocab.contains(merged)) vocab[merged] = next;
    ++next;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

inline nlohmann::json test_added_token(int id, const std::string& content, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace motley
