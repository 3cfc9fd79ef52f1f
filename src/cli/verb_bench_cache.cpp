// motley bench cache: what eviction policies would have hit on recorded or made-up routes.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fault_points.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "experts/cache/cache_replay.h"
#include "experts/cache/synthetic_routes.h"

namespace motley {
namespace {

using namespace options;
using Json = nlohmann::ordered_json;

const OptionSpec kTrace = {.name = "trace",
                           .type = OptionType::kFile,
                           .value = "FILE",
                           .help = "recorded routes to replay",
                           .environment = "MOTLEY_BENCH_TRACE"};
const OptionSpec kSynthetic = {.name = "synthetic",
                               .type = OptionType::kChoice,
                               .help = "routes made up by a rule, instead of --trace",
                               .choices = {"zipf", "uniform", "shift", "scan"}};
const OptionSpec kResidency = {.name = "residency",
                               .type = OptionType::kText,
                               .value = "LIST",
                               .help = "percent of all experts in memory, separated by commas",
                               .default_value = "5,10,25,50"};
const OptionSpec kExpertBytes = {.name = "expert-bytes",
                                 .type = OptionType::kBytes,
                                 .value = "SIZE",
                                 .help = "size of one expert; prints bytes read per token",
                                 .least = 1};
const OptionSpec kTraceLayers = {.name = "layers",
                                 .type = OptionType::kInteger,
                                 .value = "N",
                                 .help = "layers of made-up routes",
                                 .default_value = "8",
                                 .least = 1,
                                 .most = 4096,
                                 .environment = "MOTLEY_BENCH_LAYERS"};
const OptionSpec kExperts = {.name = "experts",
                             .type = OptionType::kInteger,
                             .value = "N",
                             .help = "experts of a layer of made-up routes",
                             .default_value = "256",
                             .least = 1,
                             .most = 65536,
                             .environment = "MOTLEY_BENCH_EXPERTS"};
const OptionSpec kTop = {.name = "top",
                         .type = OptionType::kInteger,
                         .value = "K",
                         .help = "experts per token and layer of made-up routes",
                         .default_value = "8",
                         .least = 1,
                         .most = 1024,
                         .environment = "MOTLEY_BENCH_TOP"};
const OptionSpec kTokens = {.name = "tokens",
                            .type = OptionType::kInteger,
                            .value = "N",
                            .help = "tokens of made-up routes",
                            .default_value = "4096",
                            .least = 1,
                            .most = 1e8,
                            .environment = "MOTLEY_BENCH_TOKENS"};
const OptionSpec kSkew = {.name = "skew",
                          .type = OptionType::kReal,
                          .value = "S",
                          .help = "popularity is 1 / rank^S (zipf and shift)",
                          .default_value = "1",
                          .least = 0,
                          .most = 10};
const OptionSpec kShiftEvery = {.name = "shift-every",
                                .type = OptionType::kInteger,
                                .value = "N",
                                .help = "tokens after which popularity is drawn anew (shift)",
                                .default_value = "512",
                                .least = 1,
                                .most = 1e8};
const OptionSpec kRouteSeed = {.name = "seed",
                               .type = OptionType::kInteger,
                               .value = "S",
                               .help = "seed of made-up routes",
                               .default_value = "1",
                               .least = 0};

Result<std::vector<double>> parse_residencies(const std::string& list) {
  std::vector<double> percents;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const auto percent = parse_real(list.substr(at, end - at));
    if (!percent || !(*percent > 0 && *percent <= 100) || percents.size() == 32) {
      return invalid_argument(
          "--residency needs up to 32 percentages above 0, at most 100, such as 10,25");
    }
    percents.push_back(*percent);
    at = end + 1;
  }
  return percents;
}

Status check_bench_cache(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  if (values.given(kTrace) == values.given(kSynthetic)) {
    return invalid_argument("give --trace FILE or --synthetic PATTERN, one of them");
  }
  const std::string pattern = values.given(kSynthetic) ? values.text(kSynthetic) : "--trace";
  const auto refuse = [&](const OptionSpec& option, bool has_effect) {
    if (has_effect || !values.given(option)) return Status::ok();
    return invalid_argument(
        fmt::format("{} has no effect with {}", values.source(option), pattern));
  };
  for (const OptionSpec* option : {&kTraceLayers, &kExperts, &kTop, &kTokens, &kRouteSeed}) {
    MOTLEY_RETURN_IF_ERROR(refuse(*option, values.given(kSynthetic)));
  }
  MOTLEY_RETURN_IF_ERROR(refuse(kSkew, pattern == "zipf" || pattern == "shift"));
  MOTLEY_RETURN_IF_ERROR(refuse(kShiftEvery, pattern == "shift"));
  return parse_residencies(values.text(kResidency)).status();
}

Result<RouteTrace> find_routes(const OptionValues& values) {
  if (values.given(kTrace)) {
    FaultPoints faults;
    return read_route_trace(faults, values.text(kTrace));
  }
  SyntheticOptions options;
  for (const RoutePattern pattern :
       {RoutePattern::kZipf, RoutePattern::kUniform, RoutePattern::kShift, RoutePattern::kScan}) {
    if (route_pattern_name(pattern) == values.text(kSynthetic)) options.pattern = pattern;
  }
  options.layers = static_cast<int>(values.integer(kTraceLayers));
  options.experts = static_cast<int>(values.integer(kExperts));
  options.top = static_cast<int>(values.integer(kTop));
  options.tokens = values.integer(kTokens);
  options.skew = values.real(kSkew);
  options.shift_tokens = values.integer(kShiftEvery);
  options.seed = static_cast<uint64_t>(values.integer(kRouteSeed));
  return make_synthetic_routes(options);
}

struct PolicyRow {
  ReplayPolicy policy = ReplayPolicy::kLru;
  ReplayResult result;
  double us_per_step = 0;  // of the replay: one layer of one token, with reading the trace
};

struct ResidencyBlock {
  double percent = 0;
  int slots = 0;
  std::string refused;  // why nothing was replayed
  std::vector<PolicyRow> rows;
};

Result<ResidencyBlock> replay_block(const RouteTrace& trace, double percent, StageLine& line) {
  const SteadyClock clock;
  ResidencyBlock block{percent, slots_for_residency(trace.shape, percent / 100), {}, {}};
  for (const ReplayPolicy policy : kReplayPolicies) {
    line.show(fmt::format("replaying {} at {} %", replay_policy_name(policy), percent));
    const int64_t start_ns = clock.now_ns();
    const Result<ReplayResult> result = replay_routes(trace, policy, block.slots);
    if (result.status().code() == StatusCode::kResourceExhausted) {
      block.refused = result.status().message();
      break;
    }
    MOTLEY_RETURN_IF_ERROR(result.status());
    const double steps = static_cast<double>(trace.tokens()) * trace.shape.layers;
    block.rows.push_back({policy, *result, 1e6 * seconds_since(clock, start_ns) / steps});
  }
  return block;
}

std::string table_of(const RouteTrace& trace, const std::vector<ResidencyBlock>& blocks,
                     int64_t expert_bytes) {
  const RouteShape& shape = trace.shape;
  const auto decoded = std::count(trace.roles.begin(), trace.roles.end(), RouteRole::kDecode);
  std::string text = fmt::format(
      "{}: {} layers of {} experts, {} per token\n{} decoded tokens, {} of prefill (heat only)\n",
      shape.model, shape.layers, shape.experts, shape.top, decoded, trace.tokens() - decoded);
  if (trace.cut_bytes > 0) {
    text +=
        fmt::format("{} bytes of an unfinished record at the end are left out\n", trace.cut_bytes);
  }
  text += fmt::format("\n{:>9} {:>8}  {:<7} {:>6}  {:<23} {:>13} {:>10} {:>8}{}\n", "residency",
                      "slots", "policy", "hit %", "by quarter", "misses/token", "evictions",
                      "us/step", expert_bytes > 0 ? "  MB/token" : "");
  for (const ResidencyBlock& block : blocks) {
    if (!block.refused.empty()) {
      text += fmt::format("{:>7g} % {:>8}  {}\n", block.percent, block.slots, block.refused);
    }
    for (const PolicyRow& row : block.rows) {
      std::string quarters;
      for (const HitCount& each : row.result.quarters) {
        quarters += fmt::format("{:>5.1f} ", 100 * each.rate());
      }
      const double misses = row.result.misses_per_token();
      text +=
          fmt::format("{:>7g} % {:>8}  {:<7} {:>6.2f} {} {:>13.2f} {:>10} {:>8.2f}", block.percent,
                      block.slots, replay_policy_name(row.policy), 100 * row.result.all.rate(),
                      quarters, misses, row.result.evictions, row.us_per_step);
      if (expert_bytes > 0) {
        text += fmt::format("  {:>8.1f}", misses * static_cast<double>(expert_bytes) / 1e6);
      }
      text += '\n';
    }
  }
  return text + "Belady knows the future: the bound of any policy.\n";
}

std::string json_of(const RouteTrace& trace, const std::vector<ResidencyBlock>& blocks,
                    int64_t expert_bytes) {
  const RouteShape& shape = trace.shape;
  const auto decoded = std::count(trace.roles.begin(), trace.roles.end(), RouteRole::kDecode);
  Json json = {{"model", shape.model},         {"layers", shape.layers},
               {"experts", shape.experts},     {"experts_per_token", shape.top},
               {"decoded_tokens", decoded},    {"prefill_tokens", trace.tokens() - decoded},
               {"cut_bytes", trace.cut_bytes}, {"residencies", Json::array()}};
  for (const ResidencyBlock& block : blocks) {
    Json entry = {{"percent", block.percent}, {"slots", block.slots}};
    if (!block.refused.empty()) entry["error"] = block.refused;
    entry["policies"] = Json::array();
    for (const PolicyRow& row : block.rows) {
      Json quarters = Json::array();
      for (const HitCount& each : row.result.quarters) quarters.push_back(each.rate());
      const double misses = row.result.misses_per_token();
      Json policy = {
          {"policy", replay_policy_name(row.policy)}, {"hit_rate", row.result.all.rate()},
          {"hit_rate_by_quarter", quarters},          {"misses_per_token", misses},
          {"evictions", row.result.evictions},        {"us_per_step", row.us_per_step}};
      if (expert_bytes > 0) {
        policy["bytes_per_token"] = misses * static_cast<double>(expert_bytes);
      }
      entry["policies"].push_back(std::move(policy));
    }
    json["residencies"].push_back(std::move(entry));
  }
  return dump_json(json);
}

Result<int> run_bench_cache(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  StageLine line(invocation.console);
  line.show("reading routes");
  MOTLEY_ASSIGN_OR_RETURN(const RouteTrace trace, find_routes(values));
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<double> percents,
                          parse_residencies(values.text(kResidency)));
  std::vector<ResidencyBlock> blocks;
  for (const double percent : percents) {
    MOTLEY_ASSIGN_OR_RETURN(ResidencyBlock block, replay_block(trace, percent, line));
    blocks.push_back(std::move(block));
  }
  line.show("");
  const int64_t expert_bytes = values.given(kExpertBytes) ? values.bytes(kExpertBytes) : 0;
  invocation.console.out(values.flag(kJson) ? json_of(trace, blocks, expert_bytes)
                                            : table_of(trace, blocks, expert_bytes));
  return kExitOk;
}

}  // namespace

VerbSpec bench_cache_verb() {
  return {.name = "bench cache",
          .summary = "compare eviction policies of the expert cache on routes",
          .description =
              "Replays routes, recorded or made up, through the cache that holds streamed experts: "
              "least recently used, least frequently used, motley's own policy, and Belady's, "
              "which knows the future and is the bound. Tokens of prefill only teach heat. Needs "
              "no model.",
          .arguments = {},
          .options = {kTrace, kSynthetic, kResidency, kExpertBytes, kTraceLayers, kExperts, kTop,
                      kTokens, kSkew, kShiftEvery, kRouteSeed, kJson},
          .examples = {{"motley bench cache --synthetic zipf --residency 25", "made-up routes"},
                       {"motley bench cache --trace FILE --expert-bytes 1.77MB --json",
                        "recorded ones, for programs"}},
          .check = check_bench_cache,
          .run = run_bench_cache};
}

}  // namespace motley
