// Which files make a GGUF model: one, or a set of shards NAME-00001-of-0000N.gguf.
//
// A model is named by one of its files or by a directory that holds nothing else of the kind
// (files mmproj-*.gguf, of vision towers, do not count). A directory with a safetensors checkpoint
// is not a GGUF model. Files are opened through ModelDirectory, by plain names.
// Ownership: values. Thread rule: plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "io/file.h"
#include "spec/gguf_metadata.h"

namespace motley {

struct GgufFiles {
  ModelDirectory directory;
  std::vector<std::string> names;  // in order of the shards
};

// nullopt when `path` names no GGUF model at all; kInvalidArgument when a directory holds several,
// kNotFound when a shard is missing.
Result<std::optional<GgufFiles>> find_gguf_files(FaultPoints& faults, const std::string& path);

// The keys of the first file; nullopt as above.
Result<std::optional<GgufMetadata>> read_gguf_metadata(FaultPoints& faults,
                                                       const std::string& path);

}  // namespace motley
