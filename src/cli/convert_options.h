// What the verbs that write checkpoints have in common.
// Thread rule: constants; write_checkpoint on the main thread.
#pragma once

#include <functional>

#include "base/signals.h"
#include "base/status.h"
#include "cli/console.h"
#include "cli/option_spec.h"
#include "io/convert/checkpoint_export.h"

namespace motley::options {

inline const OptionSpec kShardSize = {.name = "shard-size",
                                      .type = OptionType::kBytes,
                                      .value = "SIZE",
                                      .help = "largest file, such as 4GB or 512MiB",
                                      .default_value = "4GiB",
                                      .least = 1 << 20};

}  // namespace motley::options

namespace motley {

// Runs `work` with `output`, which Ctrl-C and SIGTERM stop: then exit 130, and nothing is left.
inline Result<int> write_checkpoint(Console& console, ExportOptions output,
                                    const std::function<Status(const ExportOptions&)>& work) {
  const InterruptHandler interrupt(InterruptHandler::Signals::kInterruptAndTerminate);
  output.stop = [&interrupt] { return interrupt.interrupted(); };
  const Status status = work(output);
  if (status.code() == StatusCode::kCancelled) {
    console.error(output.directory + ": " + status.message());
    return kExitInterrupted;
  }
  MOTLEY_RETURN_IF_ERROR(status);
  return kExitOk;
}

}  // namespace motley
