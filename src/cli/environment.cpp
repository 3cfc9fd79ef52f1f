#include "cli/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cli/suggestion.h"

namespace motley {

Environment read_environment(const char* const* entries) {
  Environment environment;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry = *entries;
    const size_t equals = entry.find('=');
    if (!entry.starts_with("MOTLEY_") || equals == std::string_view::npos) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

Status check_environment(const Environment& environment, std::span<const VerbSpec> verbs) {
  std::vector<std::string> known;
  for (const VerbSpec& verb : verbs) {
    for (const OptionSpec& option : verb.options) known.push_back(environment_name(option));
  }
  for (const auto& [name, value] : environment) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return invalid_argument(fmt::format("environment variable {} is not known{}", quote_input(name),
                                        suggestion_for(name, known)));
  }
  return Status::ok();
}

Status apply_environment(const Environment& environment, const VerbSpec& verb,
                         OptionValues* values) {
  for (const OptionSpec& option : verb.options) {
    const std::string name = environment_name(option);
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty() || values->given(option)) continue;
    MOTLEY_RETURN_IF_ERROR(values->set(option, {found->second}, name));
  }
  return Status::ok();
}

}  // namespace motley
