// motley quantize: a checkpoint in another number format from any checkpoint that can be read.
#include <fmt/format.h>

#include <functional>

#include "base/owned_context.h"
#include "cli/byte_progress.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/convert_options.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/verbs.h"
#include "io/convert/quantize.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kFormat = {.name = "format",
                            .type = OptionType::kChoice,
                            .help =
                                "mlx (affine), fp8 (128x128), nvfp4 (as ModelOpt spells it or, "
                                "packed, as compressed-tensors), mxfp4; bf16 undoes all",
                            .default_value = "mlx",
                            .choices = {"mlx", "bf16", "fp8", "nvfp4", "nvfp4-packed", "mxfp4"}};
const OptionSpec kBits = {.name = "bits",
                          .type = OptionType::kInteger,
                          .value = "N",
                          .help = "bits per weight: 2, 3, 4, 5, 6 or 8",
                          .default_value = "4",
                          .least = 2,
                          .most = 8};
const OptionSpec kGroup = {.name = "group",
                           .type = OptionType::kInteger,
                           .value = "N",
                           .help = "weights that share a scale: 32, 64 or 128",
                           .default_value = "64",
                           .least = 32,
                           .most = 128};
const OptionSpec kExpertsBits = {.name = "experts-bits",
                                 .type = OptionType::kInteger,
                                 .value = "N",
                                 .help = "bits per weight of the routed experts",
                                 .default_note = "as --bits",
                                 .least = 2,
                                 .most = 8};

Status check_quantize(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  if (values.text(kFormat) == "mlx") return Status::ok();
  for (const OptionSpec* option : {&kBits, &kGroup, &kExpertsBits}) {
    if (values.given(*option)) {
      return invalid_argument(fmt::format("{} has no effect with --format {}",
                                          values.source(*option), values.text(kFormat)));
    }
  }
  return Status::ok();
}

Result<FormatRequest> format_request(const OptionValues& values) {
  if (values.text(kFormat) != "mlx") return parse_format(values.text(kFormat));
  FormatRequest request;
  request.standard = {static_cast<int>(values.integer(kBits)),
                      static_cast<int>(values.integer(kGroup))};
  if (values.given(kExpertsBits)) {
    request.experts = {static_cast<int>(values.integer(kExpertsBits)), request.standard.group_size};
  }
  return request;
}

Result<int> run_quantize(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  MOTLEY_ASSIGN_OR_RETURN(const FormatRequest request, format_request(values));
  ExportOptions output{.directory = *values.argument("OUT"),
                       .shard_bytes = values.bytes(kShardSize)};
  ByteProgress progress(owned.get().clock, "quantising");
  output.progress = std::ref(progress);
  return write_checkpoint(
      invocation.console, std::move(output), [&](const ExportOptions& stoppable) {
        return quantize_checkpoint(owned.get(), *values.argument("IN"), request, stoppable);
      });
}

}  // namespace

VerbSpec quantize_verb() {
  return {.name = "quantize",
          .summary = "write a checkpoint in another number format",
          .description =
              "Reads any checkpoint that motley can run and writes a directory in the layout of "
              "MLX, affine-quantised, that other MLX readers understand too. Router and shared "
              "gate keep 8 bits. Draft layers (mtp.*) are kept at 8 bits or more, under names that "
              "other readers ignore. Or block-scaled floats in the names of released files, where "
              "embedding, head, router and gates stay BF16, and 4-bit formats leave the draft. "
              "Tokenizer, chat template and generation settings are copied.",
          .arguments = {{.name = "IN", .type = OptionType::kFolder, .help = "model directory"},
                        {.name = "OUT",
                         .type = OptionType::kFolder,
                         .help = "directory to write; created, must be empty"}},
          .options = {kFormat, kBits, kGroup, kExpertsBits, kShardSize, kThreads, kVerbose},
          .examples = {{"motley quantize IN OUT", "4 bits, groups of 64"},
                       {"motley quantize IN OUT --bits 8 --experts-bits 4",
                        "attention and head at 8 bits, experts at 4"},
                       {"motley quantize IN OUT --format nvfp4", "4-bit floats"}},
          .check = check_quantize,
          .run = run_quantize};
}

}  // namespace motley
