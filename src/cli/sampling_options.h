// The sampling options of `motley run`, over the defaults that the checkpoint ships.
// Thread rule: pure functions, except for the file system.
#pragma once

#include <string>
#include <vector>

#include "cli/option_spec.h"
#include "cli/option_values.h"
#include "engine/sampling_params.h"
#include "spec/generation_config.h"

namespace motley {

std::vector<OptionSpec> sampling_option_table();

// What generation_config.json asks for; greedy when it does not sample.
SamplingParams sampling_defaults(const GenerationConfig& config);

// The defaults with every given option in their place. Without --seed a sampled run gets a seed
// from the system's random source. kInvalidArgument names the option.
// What the table cannot say about the form of values; an error is one of usage.
Status check_sampling_options(const OptionValues& values);
Result<SamplingParams> sampling_params(const OptionValues& values, SamplingParams defaults);

}  // namespace motley
