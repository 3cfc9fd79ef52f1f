#include "cli/run_options.h"

#include <fmt/format.h>

#include "base/cache_folder.h"
#include "base/clock.h"
#include "base/owned_context.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/sampling_options.h"
#include "engine/draft/draft_record.h"
#include "io/loader.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kPrompt = {.name = "prompt",
                            .letter = 'p',
                            .type = OptionType::kText,
                            .value = "TEXT",
                            .help = "answer TEXT and exit"};
const OptionSpec kSystem = {.name = "system",
                            .type = OptionType::kText,
                            .value = "TEXT",
                            .help = "system message that the conversation begins with"};
const OptionSpec kRaw = {.name = "raw",
                         .help =
                             "take the text as it stands, special tokens recognised, without "
                             "the chat template"};
const OptionSpec kMaxTokens = {.name = "max-tokens",
                               .letter = 'n',
                               .type = OptionType::kInteger,
                               .value = "N",
                               .help = "most new tokens of an answer",
                               .default_note = "until the model ends it or the context is full",
                               .least = 1,
                               .most = 1e9};
const OptionSpec kStop = {.name = "stop",
                          .type = OptionType::kText,
                          .value = "TEXT",
                          .help = "end the answer before TEXT",
                          .repeatable = true};
const OptionSpec kIgnoreEos = {.name = "ignore-eos",
                               .help = "go on after the model's end-of-text tokens"};
const OptionSpec kLogprobs = {
    .name = "logprobs",
    .type = OptionType::kInteger,
    .value = "K",
    .help = "with --json: the probability of each token and of the K most likely ones",
    .default_note = "none",
    .least = 0,
    .most = 100};

constexpr size_t kMaxPromptBytes = size_t{256} << 20;

Status no_effect(const OptionValues& values, const OptionSpec& option, std::string_view reason) {
  return invalid_argument(fmt::format("{} has no effect {}", values.source(option), reason));
}

}  // namespace

std::vector<OptionSpec> run_option_table() {
  std::vector<OptionSpec> table = {kPrompt, kFile,      kRaw,  kSystem,
                                   kThink,  kMaxTokens, kStop, kIgnoreEos};
  for (const OptionSpec& option : sampling_option_table()) table.push_back(option);
  table.push_back(kLogprobs);
  table.push_back(kDraft);
  table.push_back(kKeepHeat);
  table.push_back(kRecordRoutes);
  table.push_back(kJson);
  for (const OptionSpec& option : engine_option_table()) table.push_back(option);
  return table;
}

Status check_run_options(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_RETURN_IF_ERROR(check_engine_options(values));
  MOTLEY_RETURN_IF_ERROR(check_sampling_options(values));
  MOTLEY_RETURN_IF_ERROR(check_draft_option(values));
  for (const std::string& stop : values.texts(kStop)) {
    if (stop.empty()) return invalid_argument(values.source(kStop) + " needs a text");
  }
  if (values.given(kPrompt) && values.given(kFile)) {
    return invalid_argument(
        fmt::format("give {} or {}, not both", values.source(kPrompt), values.source(kFile)));
  }
  if (values.flag(kRaw)) {
    for (const OptionSpec* option : {&kSystem, &kThink}) {
      if (values.given(*option)) return no_effect(values, *option, "with --raw");
    }
  }
  if (values.given(kLogprobs) && !values.flag(kJson)) {
    return no_effect(values, kLogprobs, "without --json");
  }
  const bool chat =
      !values.given(kPrompt) && !values.given(kFile) && invocation.console.in_is_terminal();
  if (chat && (values.flag(kRaw) || values.flag(kJson))) {
    return invalid_argument(
        fmt::format("{} needs a text: -p TEXT, -f FILE or standard input",
                    values.flag(kRaw) ? values.source(kRaw) : values.source(kJson)));
  }
  if (values.given(kPocket) && values.argument("MODEL") && values.source(kPocket) == "--pocket") {
    return no_effect(values, kPocket, "when a MODEL is named");
  }
  return Status::ok();
}

ChatOptions chat_options(const OptionValues& values) {
  ChatOptions chat;
  if (values.given(kSystem)) chat.system = values.text(kSystem);
  if (values.given(kThink)) chat.think = values.text(kThink) == "on";
  chat.raw = values.flag(kRaw);
  chat.json = values.flag(kJson);
  chat.verbose = values.flag(kVerbose);
  return chat;
}

Result<std::optional<std::string>> one_shot_prompt(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  const Console& console = invocation.console;
  if (values.given(kPrompt)) return std::optional(values.text(kPrompt));
  const bool from_file = values.given(kFile) && values.text(kFile) != "-";
  if (!from_file && !values.given(kFile) && console.in_is_terminal()) {
    return std::optional<std::string>();
  }
  Result<std::string> text =
      from_file ? read_input_file(values.text(kFile), kMaxPromptBytes)
                : read_stream(console.in_descriptor(), kMaxPromptBytes, "standard input");
  if (!text.is_ok()) return text.status();
  return std::optional(std::move(text).value());
}

Result<RunModel> load_run_model(const OptionValues& values) {
  RunModel model;
  MOTLEY_ASSIGN_OR_RETURN(model.path, find_model(values));
  model.context = std::make_unique<OwnedContext>(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(model.context->status());
  Context& context = model.context->get();
  const int64_t start_ns = context.clock.now_ns();
  // A model of another family is named as such, whatever files it lacks.
  MOTLEY_RETURN_IF_ERROR(check_model_family(context, model.path));
  MOTLEY_ASSIGN_OR_RETURN(TextModel text, load_text_model(model.path));
  if (values.given(kThink) && text.chat_template && text.thinking_switches().empty()) {
    return unsupported("the chat template has no switch for reasoning; leave out --think");
  }
  model.text = std::make_unique<TextModel>(std::move(text));
  EngineOptions engine = engine_options(values, model.path);
  if (values.text(kKeepHeat) == "on") engine.heat_folder = cache_file_path("heat");
  set_drafts(draft_choice(values), &engine);
  if (engine.drafts) model.draft_records = cache_file_path("drafts.json");
  MOTLEY_ASSIGN_OR_RETURN(model.engine, load_engine(context, std::move(engine)));
  MOTLEY_ASSIGN_OR_RETURN(model.routes, route_recorder(values, *model.engine));
  model.load_s = seconds_since(context.clock, start_ns);
  return model;
}

namespace {

// Warns when drafts are wrong too often; otherwise adds them to the model's record.
Status judge_drafts(const RunModel& model, const DraftStats& drafts) {
  Context& context = model.context->get();
  const std::string key = draft_record_key(model.engine->model());
  std::vector<DraftRecord> records;
  Result<std::vector<DraftRecord>> kept = load_draft_records(context.faults, model.draft_records);
  if (kept.is_ok()) {
    records = std::move(kept).value();
  } else {
    context.log.warning("{}; starting without", kept.status().message());
  }
  if (const auto alarm = draft_alarm(drafts, find_draft_record(records, key))) {
    context.log.warning("{}: {}", model.path, *alarm);
    return Status::ok();
  }
  if (model.draft_records.empty()) return Status::ok();
  return store_draft_record(context.faults, model.draft_records, std::move(records), key, drafts);
}

}  // namespace

Status RunModel::finish(const DraftStats& drafts) const {
  if (drafts.steps() > 0) {
    if (const Status kept = judge_drafts(*this, drafts); !kept.is_ok()) {
      context->get().log.warning("the acceptance of drafts is not kept: {}", kept.message());
    }
  }
  if (const Status kept = engine->save_heat(); !kept.is_ok()) {
    context->get().log.warning("what the run has learned is not kept: {}", kept.message());
  }
  return routes != nullptr ? routes->finish() : Status::ok();
}

Result<SessionOptions> session_options(const OptionValues& values, const RunModel& model) {
  SessionOptions session;
  const LoadedModel& loaded = model.engine->model();
  MOTLEY_ASSIGN_OR_RETURN(session.request.sampling,
                          sampling_params(values, sampling_defaults(loaded.generation)));
  MOTLEY_RETURN_IF_ERROR(session.request.sampling.validate(loaded.spec.vocab_size));
  if (values.given(kMaxTokens)) session.request.max_new_tokens = values.integer(kMaxTokens);
  if (!values.flag(kIgnoreEos)) {
    session.request.stop_tokens = model.text->stop_tokens(loaded.spec.eos_tokens);
  }
  if (values.given(kLogprobs)) {
    session.request.top_logprobs = static_cast<int>(values.integer(kLogprobs));
  }
  session.stops = values.texts(kStop);
  session.prefill_chunk = values.integer(kPrefillChunk);
  session.drafts = draft_choice(values).most;
  session.draft_auto = draft_choice(values).is_auto;
  session.progress = stderr_progress_output();
  session.observer = model.routes.get();
  return session;
}

}  // namespace motley
