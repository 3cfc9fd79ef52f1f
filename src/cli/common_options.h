// Options that several verbs share.
// Thread rule: constants.
#pragma once

#include "cli/option_spec.h"

namespace motley::options {

// Output.
inline const OptionSpec kJson = {.name = "json", .help = "print one JSON object"};
inline const OptionSpec kVerbose = {
    .name = "verbose",
    .letter = 'v',
    .help = "say on standard error what is decided and why (log level info)"};

// Input.
inline const OptionSpec kFile = {.name = "file",
                                 .letter = 'f',
                                 .type = OptionType::kFile,
                                 .value = "FILE",
                                 .help =
                                     "take the text from FILE, byte for byte (- for standard "
                                     "input)"};
inline const OptionSpec kThink = {
    .name = "think",
    .type = OptionType::kChoice,
    .help = "set the chat template's switch for reasoning; refused when it has none",
    .default_note = "as the template has it",
    .choices = {"on", "off"}};
inline const OptionSpec kPocket = {
    .name = "pocket",
    .type = OptionType::kFolder,
    .value = "DIR",
    .help = "where the pocket model is, which is used when no MODEL is named",
    .default_note = "models/pocket beside the program"};

// Engine.
inline const OptionSpec kThreads = {.name = "threads",
                                    .type = OptionType::kInteger,
                                    .value = "N",
                                    .help = "processor threads",
                                    .default_note = "one per physical core that may be used",
                                    .least = 1,
                                    .most = 1024};
inline const OptionSpec kNumeric = {
    .name = "numeric",
    .type = OptionType::kChoice,
    .help = "numeric profile: float32 throughout, or bfloat16 activations and caches",
    .default_value = "fast",
    .choices = {"exact", "fast"}};
inline const OptionSpec kCpu = {.name = "cpu",
                                .type = OptionType::kChoice,
                                .help = "instruction set of the processor",
                                .default_note = "the best that it has",
                                .choices = {"portable", "neon", "avx2", "avx512", "amx"}};
inline const OptionSpec kReference = {.name = "reference",
                                      .help = "compute everything in the slow float64 reference"};
inline const OptionSpec kCacheFormat = {.name = "cache-format",
                                        .type = OptionType::kChoice,
                                        .help = "element type of the key and value cache",
                                        .default_note = "f32 in exact, bf16 in fast",
                                        .choices = {"f32", "bf16"}};
inline const OptionSpec kDelta = {
    .name = "delta",
    .type = OptionType::kChoice,
    .help = "form of the gated delta rule in prefill: token by token, or in blocks of 64",
    .default_value = "recurrent",
    .choices = {"recurrent", "chunked"}};
inline const OptionSpec kContext = {.name = "context",
                                    .type = OptionType::kInteger,
                                    .value = "N",
                                    .help = "most tokens of a sequence, prompt and answer",
                                    .default_note = "what the model was made for",
                                    .least = 1,
                                    .most = 1e9};
inline const OptionSpec kStateBudget = {
    .name = "state-budget",
    .type = OptionType::kBytes,
    .value = "SIZE",
    .help = "memory for the state of sequences, such as 4GB or 512MiB",
    .default_note = "half of the free memory",
    .least = 1};
inline const OptionSpec kExpertSlots = {
    .name = "expert-slots",
    .type = OptionType::kInteger,
    .value = "N",
    .help = "most experts of a layer computed at once; more run in waves",
    .default_note = "no bound",
    .least = 1,
    .most = 1e6};
inline const OptionSpec kMemory = {
    .name = "memory",
    .type = OptionType::kText,
    .value = "SIZE",
    .help =
        "memory for everything, such as 8GiB or 60% of the machine's; experts that do not fit "
        "are read from the drive when they are needed",
    .default_note = "what is free"};
inline const OptionSpec kExpertCache = {
    .name = "expert-cache",
    .type = OptionType::kText,
    .value = "SIZE",
    .help =
        "stream experts, with this much memory for those used last: a size, or a share of all "
        "experts such as 25%",
    .default_note = "what --memory leaves"};
inline const OptionSpec kIo = {.name = "io",
                               .type = OptionType::kChoice,
                               .help = "how streamed experts are read",
                               .default_value = "auto",
                               .choices = {"auto", "uring", "pread"}};
inline const OptionSpec kLookAhead = {
    .name = "look-ahead",
    .type = OptionType::kChoice,
    .help = "read streamed experts that the next layer will probably want",
    .default_value = "on",
    .choices = {"on", "off"}};
inline const OptionSpec kRecordRoutes = {
    .name = "record-routes",
    .type = OptionType::kFile,
    .value = "FILE",
    .help = "write which experts every token chose, for `motley bench cache --trace`"};
inline const OptionSpec kKeepHeat = {
    .name = "keep-heat",
    .type = OptionType::kChoice,
    .help = "keep which experts of a streamed model were used most, for the next run",
    .default_value = "on",
    .choices = {"on", "off"}};
inline const OptionSpec kExpertsUsed = {
    .name = "experts",
    .type = OptionType::kInteger,
    .value = "K",
    .help = "use fewer experts per token than the model has been trained with: faster and LOSSY",
    .default_note = "the model's own",
    .least = 1,
    .most = 1024};
inline const OptionSpec kPacked = {
    .name = "packed",
    .type = OptionType::kFolder,
    .value = "DIR",
    .help =
        "read streamed experts from the pack in DIR (motley pack); once for each mirror or part",
    .default_note = "read them from MODEL",
    .repeatable = true};
inline const OptionSpec kCheck = {.name = "check",
                                  .help = "verify the checksums of packed experts as they arrive"};
inline const OptionSpec kDraft = {
    .name = "draft",
    .type = OptionType::kText,
    .value = "K",
    .help =
        "let the model's own draft layer guess up to K (0 to 8) tokens a step, which the model "
        "then verifies together; auto: as many as pay. The answer is the same",
    .default_value = "0"};
inline const OptionSpec kPrefillChunk = {.name = "prefill-chunk",
                                         .type = OptionType::kInteger,
                                         .value = "N",
                                         .help = "tokens of a prompt per step, kept exactly",
                                         .default_value = "512",
                                         .least = 1,
                                         .most = 1e6};
inline const OptionSpec kNoPopulate = {
    .name = "no-populate", .help = "do not read the whole model before the first token"};

}  // namespace motley::options
