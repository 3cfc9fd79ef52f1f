// motley pack: an aligned, checksummed copy of a model's experts, for streaming.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/owned_context.h"
#include "base/signals.h"
#include "cli/byte_progress.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "experts/pack/pack_check.h"
#include "experts/pack/pack_probe.h"
#include "experts/pack/pack_writer.h"
#include "model/decoder.h"

namespace motley {
namespace {

using namespace options;
using Json = nlohmann::ordered_json;

const OptionSpec kMirror = {.name = "mirror",
                            .help = "write all experts into each OUT instead of a part"};
const OptionSpec kForce = {.name = "force", .help = "pack without asking the drive if it pays"};
const OptionSpec kVerifyPack = {.name = "verify",
                                .type = OptionType::kFolder,
                                .value = "DIR",
                                .help = "read the pack in DIR again and list damaged records",
                                .repeatable = true,
                                .environment = "MOTLEY_VERIFY_PACK"};

constexpr double kLeastGain = 0.05;
constexpr size_t kMostShown = 20;

Status check_pack_options(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  const std::vector<std::string> outs = values.arguments("OUT");
  if (values.given(kVerifyPack)) {
    if (values.argument("MODEL")) {
      return invalid_argument("--verify DIR stands alone; to repair, run motley pack MODEL OUT");
    }
    for (const OptionSpec* option : {&kMirror, &kForce}) {
      if (!values.flag(*option)) continue;
      return invalid_argument(
          fmt::format("{} has no effect with --verify", values.source(*option)));
    }
    return Status::ok();
  }
  if (!values.argument("MODEL")) return invalid_argument("MODEL is missing: the model directory");
  if (outs.empty()) return invalid_argument("OUT is missing: the directory to write");
  if (outs.size() > static_cast<size_t>(kMaxPackParts)) {
    return invalid_argument(fmt::format("at most {} OUT can be written at once", kMaxPackParts));
  }
  if (values.flag(kMirror) && outs.size() < 2) {
    return invalid_argument("--mirror needs several OUT, on drives of their own");
  }
  std::vector<std::string> sorted = outs;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return invalid_argument("an OUT is named twice");
  }
  return Status::ok();
}

double gigabytes(double bytes) {
  return bytes * 1e-9;
}

// Every OUT is on the drive of the model, so that what is measured there is what a pack would gain.
bool same_drive(const PackModel& model, const std::vector<std::string>& outs) {
  struct stat shard{};
  if (stat(model.checkpoint->shards().front().file().name().c_str(), &shard) != 0) return false;
  return std::all_of(outs.begin(), outs.end(), [&](const std::string& out) {
    std::error_code error;
    std::filesystem::path at = std::filesystem::absolute(out, error);
    while (at != at.parent_path() && !std::filesystem::exists(at, error)) at = at.parent_path();
    struct stat facts{};
    return stat(at.c_str(), &facts) == 0 && facts.st_dev == shard.st_dev;
  });
}

std::string probe_text(const PackProbe& probe) {
  return fmt::format(
      "experts are read at {:.2f} GB/s as they are ({:.1f} ranges each), at {:.2f} GB/s as "
      "records: {:+.0f} %",
      gigabytes(probe.plain_bytes_per_s), probe.ranges_per_expert,
      gigabytes(probe.packed_bytes_per_s), 100 * probe.gain());
}

Json probe_json(const PackProbe& probe) {
  return {{"ranges_per_expert", probe.ranges_per_expert},
          {"bytes_per_expert", probe.bytes_per_expert},
          {"plain_bytes_per_s", probe.plain_bytes_per_s},
          {"packed_bytes_per_s", probe.packed_bytes_per_s},
          {"gain", probe.gain()}};
}

// Asks the drive before the first byte is written; who goes on with a pack has decided already.
Result<Json> advise(Invocation& invocation, Context& context, const PackModel& model,
                    const PackOptions& options) {
  const auto begun = [](const std::string& out) {
    std::error_code error;
    return std::filesystem::exists(std::filesystem::path(out) / kPackManifestName, error);
  };
  if (invocation.options.flag(kForce) ||
      std::any_of(options.directories.begin(), options.directories.end(), begun)) {
    return Json();
  }
  StageLine line(invocation.console);
  line.show("asking the drive whether packing pays");
  const Result<PackProbe> probe = probe_packing(context, model, {.io = options.io});
  line.show("");
  MOTLEY_RETURN_IF_ERROR(probe.status());
  if (probe->gain() < kLeastGain && same_drive(model, options.directories)) {
    return invalid_argument(fmt::format(
        "packing does not pay on this drive: {}; --force packs all the same", probe_text(*probe)));
  }
  invocation.console.err(fmt::format("motley: {} on the drive of the model\n", probe_text(*probe)));
  return probe_json(*probe);
}

std::string packed_options(const PackOptions& options) {
  std::string text;
  for (const std::string& directory : options.directories) text += " --packed " + directory;
  return text;
}

int report_result(Invocation& invocation, const PackOptions& options, const PackResult& result,
                  const Json& probe) {
  const std::string model = *invocation.options.argument("MODEL");
  if (invocation.options.flag(kJson)) {
    invocation.console.out(dump_json({{"model", model},
                                      {"directories", options.directories},
                                      {"mirror", options.mirror},
                                      {"records", result.records},
                                      {"bytes", result.bytes},
                                      {"kept", result.kept},
                                      {"repaired", result.repaired},
                                      {"written", result.written},
                                      {"seconds", result.seconds},
                                      {"probe", probe}}));
    return kExitOk;
  }
  invocation.console.out(fmt::format(
      "{} records, {:.2f} GB: {} written, {} were there, {} of them repaired; {:.1f} s\n"
      "use them: motley run {}{}\n",
      result.records, gigabytes(static_cast<double>(result.bytes)), result.written,
      result.kept + result.repaired, result.repaired, result.seconds, model,
      packed_options(options)));
  return kExitOk;
}

Result<int> write(Invocation& invocation, Context& context) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(
      const LoadedModel loaded,
      load_model(context, *values.argument("MODEL"), {.populate = false, .experts_only = true}));
  const PackModel model{.checkpoint = &loaded.weights.checkpoint(),
                        .layers = model_experts(loaded.spec, loaded.weights)};
  PackOptions options{.directories = values.arguments("OUT"),
                      .mirror = values.flag(kMirror),
                      .io = read_backend_kind(values.text(kIo))};
  MOTLEY_RETURN_IF_ERROR(plan_packs(model, options).status());
  const InterruptHandler interrupt(InterruptHandler::Signals::kInterruptAndTerminate);
  options.stop = [&interrupt] { return interrupt.interrupted(); };
  MOTLEY_ASSIGN_OR_RETURN(const Json probe, advise(invocation, context, model, options));
  Result<PackResult> result = cancelled("stopped");
  {
    ByteProgress progress(context.clock, "packing");
    options.progress = std::ref(progress);
    result = write_packs(context, model, options);
  }
  if (result.status().code() == StatusCode::kCancelled) {
    invocation.console.error(result.status().message());
    return kExitInterrupted;
  }
  MOTLEY_RETURN_IF_ERROR(result.status());
  return report_result(invocation, options, *result, probe);
}

std::string_view parts_text(const DamagedRecord& record) {
  if (record.gate_up && record.down) return "gate+up and down";
  return record.gate_up ? "gate+up" : "down";
}

std::string check_text(const std::string& directory, const PackCheck& check) {
  std::string text;
  for (const DamagedRecord& record :
       std::span(check.damaged).first(std::min(check.damaged.size(), kMostShown))) {
    text += fmt::format("layer {} expert {} {}: {}, {} bytes from offset {}: {}\n", record.layer,
                        record.expert, parts_text(record), record.file, record.bytes, record.offset,
                        record.reason);
  }
  if (check.damaged.size() > kMostShown) {
    text += fmt::format("and {} more (--json has all)\n", check.damaged.size() - kMostShown);
  }
  text += fmt::format("{}: {} records: {} damaged, {} missing; {:.2f} GB read in {:.1f} s\n",
                      directory, check.records, check.damaged.size(), check.missing,
                      gigabytes(static_cast<double>(check.read_bytes)), check.seconds);
  if (check.damaged.empty() && check.missing == 0) return text;
  return text + (check.marked ? "\"motley pack\" with the arguments that made the pack writes them "
                                "again\n"
                              : "not marked: the pack cannot be written now\n");
}

Json check_json(const std::string& directory, const PackCheck& check) {
  Json damaged = Json::array();
  for (const DamagedRecord& record : check.damaged) {
    damaged.push_back({{"layer", record.layer},
                       {"expert", record.expert},
                       {"part", parts_text(record)},
                       {"file", record.file},
                       {"offset", record.offset},
                       {"bytes", record.bytes},
                       {"reason", record.reason}});
  }
  return {{"directory", directory},   {"records", check.records},
          {"missing", check.missing}, {"read_bytes", check.read_bytes},
          {"marked", check.marked},   {"seconds", check.seconds},
          {"damaged", damaged}};
}

Result<int> verify(Invocation& invocation, Context& context) {
  const OptionValues& values = invocation.options;
  const InterruptHandler interrupt(InterruptHandler::Signals::kInterruptAndTerminate);
  Json packs = Json::array();
  std::string text;
  bool whole = true;
  for (const std::string& directory : values.texts(kVerifyPack)) {
    ByteProgress progress(context.clock, "verifying");
    const Result<PackCheck> check =
        check_pack(context, directory,
                   {.io = read_backend_kind(values.text(kIo)),
                    .progress = std::ref(progress),
                    .stop = [&interrupt] { return interrupt.interrupted(); }});
    if (check.status().code() == StatusCode::kCancelled) {
      invocation.console.error(directory + ": " + check.status().message());
      return kExitInterrupted;
    }
    MOTLEY_RETURN_IF_ERROR(check.status());
    whole = whole && check->damaged.empty() && check->missing == 0;
    packs.push_back(check_json(directory, *check));
    text += check_text(directory, *check);
  }
  invocation.console.out(values.flag(kJson) ? dump_json({{"packs", packs}}) : text);
  return whole ? kExitOk : kExitFailure;
}

Result<int> run_pack(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  OwnedContext owned(thread_options(values), log_options(values));
  MOTLEY_RETURN_IF_ERROR(owned.status());
  return values.given(kVerifyPack) ? verify(invocation, owned.get())
                                   : write(invocation, owned.get());
}

}  // namespace

VerbSpec pack_verb() {
  return {.name = "pack",
          .summary = "copy a model's experts into records made for streaming",
          .description =
              "Writes the routed experts of MODEL as aligned records with checksums, one per "
              "expert, into OUT. Streaming (--memory with --packed OUT) then reads two ranges an "
              "expert instead of up to nine, can verify them (--check), and can use several "
              "drives: with several OUT the experts are split over them, or each has all "
              "(--mirror). MODEL itself stays needed for everything else.\n\n"
              "Before it writes it asks the drive whether that pays and refuses if it gains less "
              "than 5 % (--force). A run that was stopped, killed or ran out of disk is continued "
              "by the same command, which also repairs what --verify found.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory",
                         .required = false},
                        {.name = "OUT",
                         .type = OptionType::kFolder,
                         .help = "directory to write; created, or continued",
                         .required = false,
                         .repeatable = true}},
          .options = {kMirror, kForce, kVerifyPack, kIo, kJson, kThreads, kVerbose},
          .examples = {{"motley pack MODEL OUT", "one pack"},
                       {"motley pack MODEL /a/pack /b/pack", "split over two drives"},
                       {"motley pack --verify OUT", "read it again"}},
          .check = check_pack_options,
          .run = run_pack};
}

}  // namespace motley
