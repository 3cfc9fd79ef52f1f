// Writes a TestModel as a model directory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/safetensors_writer.h"
#include "support/qwen_model.h"
#include "support/test_files.h"

namespace motley {

// The tensors for which `holds` is true, as one file.
inline void write_shard(const TestModel& model, const TemporaryDirectory& directory,
                        const std::string& file,
                        const std::function<bool(const std::string&)>& holds) {
  std::vector<TensorDeclaration> declarations;
  for (const auto& [name, tensor] : model.tensors) {
    if (holds(name)) declarations.push_back({name, tensor.dtype, tensor.shape});
  }
  FaultPoints faults;
  auto writer = SafetensorsWriter::create(faults, directory / file, declarations);
  MOTLEY_CHECK(writer.is_ok(), writer.status().message());
  for (size_t i = 0; i < declarations.size(); ++i) {
    const Status status = writer->write(i, 0, model.tensors.at(declarations[i].name).bytes);
    MOTLEY_CHECK(status.is_ok(), status.message());
  }
  const Status status = writer->finish();
  MOTLEY_CHECK(status.is_ok(), status.message());
}

// config.json and model.safetensors.
inline void write_model(const TestModel& model, const TemporaryDirectory& directory) {
  directory.write("config.json", model.config());
  write_shard(model, directory, "model.safetensors", [](const std::string&) { return true; });
}

}  // namespace motley
