// From config.json and the names of the tensors to a ModelSpec, whatever the family.
// Thread rule: plain functions.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "spec/config_json.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

// The `model_type`s that build_model_spec() knows.
std::vector<std::string_view> known_model_types();

// kUnsupported, with the known ones, unless config.json names a family of this build.
Status check_family(const ConfigJson& config);

// kUnsupported for an unknown family (the message lists the known ones) or an option of a family
// that has no implementation; kInvalidArgument for values out of range; kNotFound when the
// checkpoint lacks a tensor that decides the layout. Fills eos_tokens from config.json alone.
Result<ModelSpec> build_model_spec(const ConfigJson& config, const TensorCatalog& catalog);

// The spec of a checkpoint that is to be written: the names of released files in `layout`.
struct PlannedCheckpoint {
  CheckpointLayout layout = CheckpointLayout::kHuggingFace;
  bool drafts = true;             // keep the draft layers, if the configuration has any
  bool separate_experts = false;  // in the Hugging Face layout: each expert by its name
};
Result<ModelSpec> plan_model_spec(const ConfigJson& config, const PlannedCheckpoint& planned);

}  // namespace motley
