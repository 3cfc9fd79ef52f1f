// What `motley inspect` prints: the facts of a checkpoint, read without touching a weight.
//
// Ownership: owning values. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/loader.h"
#include "spec/state_layout.h"
#include "text/text_model.h"

namespace motley {

struct LayerGroup {
  std::string mixer;         // "gated delta"
  std::string feed_forward;  // "32 experts, 4 a token, 1 shared"
  std::string heads;         // of its first layer
  std::vector<int> layers;
};

struct StateRow {
  std::string cache_format;  // "bf16"
  int64_t fixed_bytes = 0;
  int64_t bytes_per_token = 0;
};

struct TextFacts {
  bool has_tokenizer = false;
  std::string tokenizer_error;  // why there is none
  int64_t vocab = 0;            // one more than the largest id
  int64_t added = 0;
  int64_t special = 0;
  std::vector<std::pair<int32_t, std::string>> stop_tokens;
  bool has_template = false;
  std::string template_error;
  bool tools = false;
  bool system_role = false;
  bool reasoning = false;  // reads reasoning_content
  std::vector<std::string> thinking_switches;
};

struct ModelFacts {
  std::string path;
  std::string family;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context = 0;
  std::vector<LayerGroup> groups;
  int drafts = 0;
  int64_t parameters = 0;  // of tensors in use, the draft layers included
  int64_t active = 0;      // that one decoded token meets, without the draft layers
  int64_t draft_parameters = 0;
  std::vector<StateRow> state;
  Placement placement;
  size_t shards = 0;
  TextFacts text;
};

Result<ModelFacts> read_model_facts(Context& context, const std::string& path);

std::string facts_table(const ModelFacts& facts);
std::string facts_json(const ModelFacts& facts);

// "20.2 GB", "980.5 MB", "512 B" (powers of 1000).
std::string bytes_text(int64_t bytes);
// "35.1 B", "20.4 M" parameters.
std::string count_text(int64_t count);

}  // namespace motley
