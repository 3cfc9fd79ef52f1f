// motley synth: a random checkpoint of any real shape, for benchmarks.
#include <functional>

#include "base/owned_context.h"
#include "cli/byte_progress.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/convert_options.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/verbs.h"
#include "io/convert/synth.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kConfig = {.name = "config",
                            .type = OptionType::kFile,
                            .value = "CONFIG.json",
                            .help = "configuration of the model to imitate"};
const OptionSpec kFormat = {.name = "format",
                            .type = OptionType::kText,
                            .value = "FORMAT",
                            .help =
                                "bf16, fp8, nvfp4, nvfp4-packed, mxfp4, or mlxB or mlxBgG for B "
                                "bits in groups of G",
                            .default_value = "mlx4",
                            .environment = "MOTLEY_SYNTH_FORMAT"};
const OptionSpec kLayers = {.name = "layers",
                            .type = OptionType::kInteger,
                            .value = "N",
                            .help = "cut the model to its first N layers",
                            .default_note = "all",
                            .least = 1,
                            .most = 1e4};
const OptionSpec kSeed = {.name = "seed",
                          .type = OptionType::kInteger,
                          .value = "S",
                          .help = "seed of the random weights",
                          .default_value = "1",
                          .least = 0};
const OptionSpec kRouterSkew = {
    .name = "router-skew",
    .type = OptionType::kReal,
    .value = "S",
    .help =
        "make expert popularity follow Zipf's law with this exponent; near token ids then "
        "choose like experts",
    .default_value = "0",
    .least = 0,
    .most = 10};
const OptionSpec kNoDraft = {.name = "no-draft", .help = "leave the draft layer out"};

Status check_synth(const Invocation& invocation) {
  if (!invocation.options.given(kConfig)) return invalid_argument("--config is needed");
  return parse_format(invocation.options.text(kFormat)).status();
}

Result<int> run_synth(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  SynthOptions options;
  options.config_path = values.text(kConfig);
  MOTLEY_ASSIGN_OR_RETURN(options.format, parse_format(values.text(kFormat)));
  options.layers = values.given(kLayers) ? values.integer(kLayers) : 0;
  options.seed = static_cast<uint64_t>(values.integer(kSeed));
  options.router_skew = values.real(kRouterSkew);
  options.drafts = !values.flag(kNoDraft);
  ExportOptions output{.directory = *values.argument("OUT"),
                       .shard_bytes = values.bytes(kShardSize)};
  ByteProgress progress(owned.get().clock, "writing");
  output.progress = std::ref(progress);
  return write_checkpoint(invocation.console, std::move(output),
                          [&](const ExportOptions& stoppable) {
                            options.output = stoppable;
                            return synthesise_checkpoint(owned.get(), options);
                          });
}

}  // namespace

VerbSpec synth_verb() {
  return {.name = "synth",
          .summary = "write a random checkpoint of a real shape",
          .description =
              "For benchmarks: byte and operation counts are those of the real model, the text is "
              "noise. Scales are chosen so that nothing overflows in any number of layers.",
          .arguments = {{.name = "OUT",
                         .type = OptionType::kFolder,
                         .help = "directory to write; created, must be empty"}},
          .options = {kConfig, kFormat, kLayers, kSeed, kRouterSkew, kNoDraft, kShardSize, kThreads,
                      kVerbose},
          .examples = {{"motley synth --config qwen3.5-35b-a3b.json --format mlx4 OUT",
                        "20 GB, four bits"},
                       {"motley synth --config C.json --format bf16 --layers 4 OUT",
                        "four layers in bfloat16"}},
          .check = check_synth,
          .run = run_synth};
}

}  // namespace motley
