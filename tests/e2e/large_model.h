// A model of a few hundred megabytes, made by `motley synth` in a second or two.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "e2e/process.h"

namespace motley::e2e {

// The pocket model with many and larger experts, so that its weights are more than what the limit
// leaves beside them, and with the tokenizer.
inline void make_large_model(const TemporaryFolder& folder, const std::string& model) {
  nlohmann::json config = nlohmann::json::parse(read_file(pocket_model() + "/config.json"));
  config.erase("quantization");
  config.erase("quantization_config");
  config["text_config"]["num_experts"] = 512;
  config["text_config"]["moe_intermediate_size"] = 512;
  const std::string path = folder.write("config.json", config.dump());
  const Outcome made = run({"synth", "--config", path, "--format", "mlx4", "--layers", "4", model});
  ASSERT_EQ(made.exit, 0) << made.err;
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"}) {
    std::filesystem::copy_file(pocket_model() + name, model + name);
  }
}

inline int64_t bytes_of_weights(const std::string& model) {
  int64_t bytes = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") {
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  return bytes;
}

}  // namespace motley::e2e
