#include "spec/generation_config.h"

#include <algorithm>
#include <limits>

namespace motley {
namespace {

Status read_optional(const ConfigObject& object, std::string_view key, double min, double max,
                     std::optional<double>* out) {
  if (!object.has(key)) return Status::ok();
  MOTLEY_ASSIGN_OR_RETURN(*out, object.number(key, min, max));
  return Status::ok();
}

}  // namespace

Result<std::vector<int32_t>> read_eos_tokens(const ConfigObject& object) {
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                          object.integers("eos_token_id", 0, std::numeric_limits<int32_t>::max()));
  std::vector<int32_t> result;
  for (const int64_t id : ids) result.push_back(static_cast<int32_t>(id));
  return result;
}

void add_eos_tokens(const std::vector<int32_t>& more, std::vector<int32_t>* all) {
  for (const int32_t id : more) {
    if (std::find(all->begin(), all->end(), id) == all->end()) all->push_back(id);
  }
}

Result<GenerationConfig> read_generation_config(const ConfigJson& config) {
  const ConfigObject root = config.root();
  GenerationConfig result;
  MOTLEY_ASSIGN_OR_RETURN(result.do_sample, root.boolean_or("do_sample", false));
  MOTLEY_RETURN_IF_ERROR(read_optional(root, "temperature", 0, 100, &result.temperature));
  MOTLEY_RETURN_IF_ERROR(read_optional(root, "top_p", 0, 1, &result.top_p));
  MOTLEY_RETURN_IF_ERROR(read_optional(root, "min_p", 0, 1, &result.min_p));
  MOTLEY_RETURN_IF_ERROR(
      read_optional(root, "repetition_penalty", 1e-3, 1e3, &result.repetition_penalty));
  if (root.has("top_k")) {
    MOTLEY_ASSIGN_OR_RETURN(result.top_k,
                            root.integer("top_k", 0, std::numeric_limits<int32_t>::max()));
  }
  MOTLEY_ASSIGN_OR_RETURN(result.eos_tokens, read_eos_tokens(root));
  return result;
}

}  // namespace motley
