// A GGUF file as a model: from metadata and tensor names to a configuration and a ModelSpec.
//
// Metadata becomes the text of a config.json that says the same, which the family reads as any
// other; the spec that follows has the canonical tensors, and their pieces are named as GGUF files
// name them. What converters changed is undone: norm weights hold 1 + w (as in the MLX layout),
// value heads are tiled (stored at j * key_heads + g, wanted at g * per_key + j), ssm_a holds
// -exp(A_log). Rows are put back by the pieces of the spec; the rest is listed for the loader.
// Source: llama.cpp conversion/qwen.py, src/llama-arch.cpp and
// src/models/{qwen35moe,qwen3next}.cpp. Thread rule: plain functions and values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "spec/config_json.h"
#include "spec/gguf_metadata.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

// Blocks of columns (or rows) that are stored in another order than they are used in.
struct TiledHeads {
  int64_t width = 1;  // of a head
  int64_t key_heads = 1;
  int64_t per_key = 1;  // value heads of a key head

  bool is_needed() const { return key_heads > 1 && per_key > 1; }
  // Where head `head` of the model is stored.
  int64_t stored(int64_t head) const { return head % per_key * key_heads + head / per_key; }
  int64_t count() const { return key_heads * per_key; }
  friend bool operator==(const TiledHeads&, const TiledHeads&) = default;
};

struct GgufModelPlan {
  std::string config;  // text of a config.json
  bool drafts = false;
  int64_t layers = 0;                               // of the trunk; the draft layer is behind them
  TiledHeads heads;                                 // of the delta layers, where they are tiled
  std::map<std::string, TiledHeads> tiled_columns;  // by tensor
  std::vector<std::string> negative_exponentials;   // tensors that hold -exp(x) of the wanted x
};

// "qwen35moe", ...: values of general.architecture that plan_gguf_model() knows.
std::vector<std::string_view> known_gguf_architectures();
// kUnsupported, with the known ones, unless the file has one of them.
Status check_gguf_architecture(const GgufMetadata& metadata);

// `tensors` has the names of the file. Errors name the key.
Result<GgufModelPlan> plan_gguf_model(const GgufMetadata& metadata, const TensorCatalog& tensors);

// `config` is the plan's, parsed.
Result<ModelSpec> build_gguf_spec(const ConfigJson& config, const GgufModelPlan& plan,
                                  const TensorCatalog& tensors);

}  // namespace motley
