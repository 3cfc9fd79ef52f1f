#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <random>

#include "base/log.h"

namespace motley {
namespace {

constexpr std::string_view kFromModel = "generation_config.json, else greedy";
constexpr std::string_view kFromModelOff = "generation_config.json, else off";

const OptionSpec kTemp = {.name = "temp",
                          .type = OptionType::kReal,
                          .value = "T",
                          .help = "temperature; 0 always takes the most likely token (greedy)",
                          .default_note = kFromModel,
                          .least = 0,
                          .most = 100};
const OptionSpec kTopK = {.name = "top-k",
                          .type = OptionType::kInteger,
                          .value = "K",
                          .help = "draw from the K most likely tokens only; 0 is off",
                          .default_note = kFromModelOff,
                          .least = 0,
                          .most = 1e9};
const OptionSpec kTopP = {.name = "top-p",
                          .type = OptionType::kReal,
                          .value = "P",
                          .help =
                              "draw from the fewest tokens that together have probability P; "
                              "1 is off",
                          .default_note = kFromModelOff,
                          .least = 0,
                          .most = 1};
const OptionSpec kMinP = {.name = "min-p",
                          .type = OptionType::kReal,
                          .value = "P",
                          .help =
                              "leave out tokens less likely than P times the most likely one; "
                              "0 is off",
                          .default_note = kFromModelOff,
                          .least = 0,
                          .most = 1};
const OptionSpec kRepetition = {
    .name = "repetition-penalty",
    .type = OptionType::kReal,
    .value = "R",
    .help = "divide the positive logits of tokens in prompt and answer by R; 1 is off",
    .default_note = kFromModelOff,
    .least = 0.01,
    .most = 100};
const OptionSpec kPresence = {.name = "presence-penalty",
                              .type = OptionType::kReal,
                              .value = "X",
                              .help = "subtract X from the logits of tokens in the answer",
                              .default_value = "0",
                              .least = -100,
                              .most = 100};
const OptionSpec kFrequency = {.name = "frequency-penalty",
                               .type = OptionType::kReal,
                               .value = "X",
                               .help = "subtract X for each time that a token is in the answer",
                               .default_value = "0",
                               .least = -100,
                               .most = 100};
const OptionSpec kSeed = {.name = "seed",
                          .type = OptionType::kInteger,
                          .value = "S",
                          .help = "seed of the random draws: same seed, same text",
                          .default_note = "a new one each run, printed with --json",
                          .least = 0};
const OptionSpec kLogitBias = {.name = "logit-bias",
                               .type = OptionType::kText,
                               .value = "ID=BIAS",
                               .help = "add BIAS to the logit of token ID",
                               .repeatable = true};

Status read_bias(const std::string& text, SamplingParams* params) {
  const size_t equals = text.find('=');
  const auto id = parse_integer(std::string_view(text).substr(0, equals));
  const auto bias = equals == std::string::npos
                        ? std::nullopt
                        : parse_real(std::string_view(text).substr(equals + 1));
  if (!id || !bias || *id < 0 || *id > INT32_MAX) {
    return invalid_argument(
        fmt::format("--logit-bias needs ID=BIAS such as 42=-3.5, not \"{}\"", quote_input(text)));
  }
  params->logit_bias[static_cast<int32_t>(*id)] = *bias;
  return Status::ok();
}

}  // namespace

std::vector<OptionSpec> sampling_option_table() {
  return {kTemp, kTopP, kTopK, kMinP, kRepetition, kPresence, kFrequency, kSeed, kLogitBias};
}

SamplingParams sampling_defaults(const GenerationConfig& config) {
  SamplingParams params;
  params.repetition_penalty = config.repetition_penalty.value_or(1);
  if (!config.do_sample) return params;
  params.temperature = config.temperature.value_or(1);
  params.top_k = static_cast<int>(config.top_k.value_or(0));
  params.top_p = config.top_p.value_or(1);
  params.min_p = config.min_p.value_or(0);
  return params;
}

Status check_sampling_options(const OptionValues& values) {
  SamplingParams unused;
  for (const std::string& bias : values.texts(kLogitBias)) {
    MOTLEY_RETURN_IF_ERROR(read_bias(bias, &unused));
  }
  return Status::ok();
}

Result<SamplingParams> sampling_params(const OptionValues& values, SamplingParams defaults) {
  SamplingParams params = std::move(defaults);
  if (values.given(kTemp)) params.temperature = values.real(kTemp);
  if (values.given(kTopK)) params.top_k = static_cast<int>(values.integer(kTopK));
  if (values.given(kTopP)) params.top_p = values.real(kTopP);
  if (values.given(kMinP)) params.min_p = values.real(kMinP);
  if (values.given(kRepetition)) params.repetition_penalty = values.real(kRepetition);
  params.presence_penalty = values.real(kPresence);
  params.frequency_penalty = values.real(kFrequency);
  for (const std::string& bias : values.texts(kLogitBias)) {
    MOTLEY_RETURN_IF_ERROR(read_bias(bias, &params));
  }
  if (values.given(kSeed)) {
    params.seed = static_cast<uint64_t>(values.integer(kSeed));
  } else if (params.temperature > 0) {
    params.seed = std::random_device()();
  }
  return params;
}

}  // namespace motley
