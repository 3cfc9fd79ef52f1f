// motley verify: holds a model against reference outputs or against the float64 reference.
#include <fmt/format.h>

#include "base/owned_context.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "engine/verify/verify_expected.h"
#include "engine/verify/verify_layers.h"

namespace motley {
namespace {

using namespace options;

const OptionSpec kExpected = {.name = "expected",
                              .type = OptionType::kFile,
                              .value = "FILE",
                              .help = "safetensors file of reference outputs to recompute"};
const OptionSpec kNumericBoth = {.name = "numeric",
                                 .type = OptionType::kChoice,
                                 .help = "check the layers in this profile only",
                                 .default_note = "both",
                                 .choices = {"exact", "fast"}};

std::vector<OptionSpec> verify_option_table() {
  std::vector<OptionSpec> table = {kExpected, kJson};
  for (const OptionSpec& option : engine_option_table()) {
    // Verification runs each profile and the reference itself.
    if (option.name == kReference.name) continue;
    table.push_back(option.name == kNumeric.name ? kNumericBoth : option);
  }
  return table;
}

Status check_verify(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  if (values.given(kExpected)) {
    if (values.given(kNumericBoth)) {
      return invalid_argument(
          fmt::format("{} has no effect with --expected: it checks exact and "
                      "then fast",
                      values.source(kNumericBoth)));
    }
    return Status::ok();
  }
  if (values.given(kPrefillChunk)) {
    return invalid_argument(
        fmt::format("{} has no effect without --expected", values.source(kPrefillChunk)));
  }
  return Status::ok();
}

bool has_draft_tensors(const ExpectedTensors& expected) {
  for (const std::string& name : expected.names()) {
    if (name.find(".mtp.") != std::string::npos) return true;
  }
  return false;
}

Result<int> verify_against_file(Invocation& invocation, Context& context, EngineOptions options) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const ExpectedTensors expected,
                          ExpectedTensors::open(context, values.text(kExpected)));
  options.profile = NumericProfile::kExact;
  options.drafts = has_draft_tensors(expected);
  MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                          load_engine(context, std::move(options)));
  VerifyOptions verify;
  verify.prefill_chunk = values.integer(kPrefillChunk);
  Result<VerifyReport> report = [&] {
    StageLine line(invocation.console);
    verify.progress = [&](const std::string& stage) { line.show("verifying " + stage); };
    return verify_expected(*engine, expected, verify);
  }();
  if (!report.is_ok()) return report.status();
  invocation.console.out(values.flag(kJson) ? report->json() : report->table());
  return report->passed() ? kExitOk : kExitFailure;
}

Result<int> verify_each_layer(Invocation& invocation, Context& context, EngineOptions options) {
  const OptionValues& values = invocation.options;
  std::vector<NumericProfile> profiles = {NumericProfile::kExact, NumericProfile::kFast};
  if (values.given(kNumericBoth)) {
    profiles = {values.text(kNumericBoth) == "exact" ? NumericProfile::kExact
                                                     : NumericProfile::kFast};
  }
  options.profile = profiles.front();
  MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> loaded, load_engine(context, options));
  bool passed = true;
  std::string json;
  for (const NumericProfile profile : profiles) {
    options.profile = profile;
    MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, loaded->with_numerics(options));
    LayerVerifyOptions verify;
    Result<LayerReport> report = [&] {
      StageLine line(invocation.console);
      verify.progress = [&](const std::string& stage) { line.show("verifying " + stage); };
      return verify_layers(*engine, verify);
    }();
    if (!report.is_ok()) return report.status();
    passed = passed && report->passed();
    json.append(json.empty() ? "[" : ",").append(report->json());
    if (!values.flag(kJson)) invocation.console.out(report->table());
  }
  if (values.flag(kJson)) invocation.console.out(json + "]\n");
  return passed ? kExitOk : kExitFailure;
}

Result<int> run_verify(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string model, find_model(values));
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  EngineOptions options = shared_engine_options(values, model);
  if (values.given(kExpected)) {
    return verify_against_file(invocation, owned.get(), std::move(options));
  }
  return verify_each_layer(invocation, owned.get(), std::move(options));
}

}  // namespace

VerbSpec verify_verb() {
  return {.name = "verify",
          .summary = "check a model's numbers against a reference",
          .description =
              "With --expected, recomputes every tensor of a file of reference outputs in the "
              "exact profile, through the code that run uses, then checks the fast profile "
              "against its own limits. Without it, gives each layer the engine's own input and "
              "compares with the float64 reference, in prefill and in decode.\n\n"
              "Exit status 0 when everything is within its limit, else 1.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = verify_option_table(),
          .examples = {{"motley verify models/pocket", "every layer, both profiles"},
                       {"motley verify DIR --expected DIR/expected.safetensors",
                        "all tensors of the file"}},
          .check = check_verify,
          .run = run_verify};
}

}  // namespace motley
