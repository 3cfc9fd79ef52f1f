// Options of the verbs that write checkpoints.
// Thread rule: constants.
#pragma once

#include "cli/option_spec.h"

namespace motley::options {

inline const OptionSpec kShardSize = {.name = "shard-size",
                                      .type = OptionType::kBytes,
                                      .value = "SIZE",
                                      .help = "largest file, such as 4GB or 512MiB",
                                      .default_value = "4GiB",
                                      .least = 1 << 20};

}  // namespace motley::options
