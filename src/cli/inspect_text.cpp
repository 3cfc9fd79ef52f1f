// The table and the JSON of inspect_report.h.
#include <fmt/format.h>

#include <map>

#include "base/log.h"
#include "cli/inspect_report.h"
#include "cli/json_text.h"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

std::string scaled(double value, const char* const* units, size_t count) {
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < count) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0])
                   : fmt::format("{:.1f}{}", value, units[unit]);
}

// "0-2, 4-6, 8".
std::string ranges_text(const std::vector<int>& values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end + 1 < values.size() && values[end + 1] == values[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", values[i]);
    if (end > i) text += fmt::format("-{}", values[end]);
    i = end + 1;
  }
  return text;
}

std::string row(std::string_view name, std::string_view value) {
  return fmt::format("{:<16} {}\n", name, value);
}

std::string layers_table(const ModelFacts& facts) {
  std::string text;
  for (const LayerGroup& group : facts.groups) {
    text += row(fmt::format("{} layers", group.layers.size()),
                fmt::format("{}: {}", group.mixer, ranges_text(group.layers)));
    text += row("", group.heads);
    text += row("", group.feed_forward);
  }
  if (facts.drafts > 0) {
    text += row("draft layers", fmt::format("{} (multi-token prediction)", facts.drafts));
  }
  return text;
}

std::string totals_table(std::string_view title, const std::vector<PlacementTotal>& totals) {
  std::string text =
      fmt::format("\n{:<20} {:>8} {:>10} {:>10}\n", title, "tensors", "file", "memory");
  for (const PlacementTotal& total : totals) {
    text += fmt::format("{:<20} {:>8} {:>10} {:>10}\n", total.key, total.tensors,
                        bytes_text(total.file_bytes), bytes_text(total.memory_bytes));
  }
  return text;
}

// Reasons of skipped tensors with their number and bytes.
std::map<std::string, std::pair<int64_t, int64_t>> skipped_by_reason(const Placement& placement) {
  std::map<std::string, std::pair<int64_t, int64_t>> reasons;
  for (const PlacementRow& tensor : placement.rows) {
    if (tensor.where != PlacementKind::kSkipped) continue;
    auto& [tensors, bytes] = reasons[tensor.reason];
    ++tensors;
    bytes += tensor.file_bytes;
  }
  return reasons;
}

std::string yes_no(bool value) {
  return value ? "yes" : "no";
}

std::string text_table(const TextFacts& facts) {
  if (!facts.has_tokenizer) return row("tokenizer", "none: " + facts.tokenizer_error);
  std::string text = row("tokenizer", fmt::format("{} ids, {} added tokens, {} of them special",
                                                  facts.vocab, facts.added, facts.special));
  std::string stops;
  for (const auto& [id, spelling] : facts.stop_tokens) {
    stops += fmt::format("{}{} ({})", stops.empty() ? "" : ", ", id,
                         escape_control_characters(spelling));
  }
  text += row("stop tokens", stops.empty() ? "none" : stops);
  if (!facts.has_template) {
    return text + row("chat template",
                      facts.template_error.empty() ? "none" : "unusable: " + facts.template_error);
  }
  std::string switches;
  for (const std::string& name : facts.thinking_switches) {
    switches.append(switches.empty() ? "" : ", ").append(name);
  }
  return text +
         row("chat template",
             fmt::format("tools {}, system message {}, reasoning {}, --think {}",
                         yes_no(facts.tools), yes_no(facts.system_role), yes_no(facts.reasoning),
                         switches.empty() ? "refused" : "sets " + switches));
}

Json totals_json(const std::vector<PlacementTotal>& totals) {
  Json list = Json::array();
  for (const PlacementTotal& total : totals) {
    list.push_back({{"name", total.key},
                    {"tensors", total.tensors},
                    {"elements", total.elements},
                    {"file_bytes", total.file_bytes},
                    {"memory_bytes", total.memory_bytes}});
  }
  return list;
}

Json layers_json(const ModelFacts& facts) {
  Json list = Json::array();
  for (const LayerGroup& group : facts.groups) {
    list.push_back({{"mixer", group.mixer},
                    {"heads", group.heads},
                    {"feed_forward", group.feed_forward},
                    {"layers", group.layers}});
  }
  return list;
}

Json text_json(const TextFacts& facts) {
  if (!facts.has_tokenizer) return {{"tokenizer", nullptr}, {"error", facts.tokenizer_error}};
  Json stops = Json::array();
  for (const auto& [id, spelling] : facts.stop_tokens) {
    stops.push_back({{"id", id}, {"text", spelling}});
  }
  Json json = {
      {"tokenizer", {{"vocab", facts.vocab}, {"added", facts.added}, {"special", facts.special}}},
      {"stop_tokens", std::move(stops)},
      {"template", nullptr}};
  if (facts.has_template) {
    json["template"] = {{"tools", facts.tools},
                        {"system", facts.system_role},
                        {"reasoning", facts.reasoning},
                        {"thinking_switches", facts.thinking_switches}};
  } else if (!facts.template_error.empty()) {
    json["template_error"] = facts.template_error;
  }
  return json;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KB", " MB", " GB", " TB"};
  return scaled(static_cast<double>(bytes), kUnits, std::size(kUnits));
}

std::string count_text(int64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  return scaled(static_cast<double>(count), kUnits, std::size(kUnits));
}

std::string facts_table(const ModelFacts& facts) {
  std::string text = row("model", facts.path) + row("family", facts.family);
  text += row(
      "parameters",
      fmt::format(
          "{} ({} active a token{})", count_text(facts.parameters), count_text(facts.active),
          facts.drafts > 0 ? fmt::format(", {} in draft layers", count_text(facts.draft_parameters))
                           : ""));
  text += row("hidden size", fmt::format("{}", facts.hidden));
  text += row("vocabulary", fmt::format("{}", facts.vocab));
  text += row("context", fmt::format("{} tokens", facts.context));
  text += layers_table(facts);
  for (const StateRow& state : facts.state) {
    text += row(fmt::format("state, {}", state.cache_format),
                fmt::format("{} fixed, {} a token, {} at full context",
                            bytes_text(state.fixed_bytes), bytes_text(state.bytes_per_token),
                            bytes_text(state.fixed_bytes + state.bytes_per_token * facts.context)));
  }
  text += text_table(facts.text);
  text += totals_table("part", facts.placement.by_part());
  text += totals_table("format", facts.placement.by_format());
  text += totals_table("where", facts.placement.by_kind());
  const PlacementTotal total = facts.placement.total();
  text += fmt::format("{:<20} {:>8} {:>10} {:>10}   in {} file{}\n", "total", total.tensors,
                      bytes_text(total.file_bytes), bytes_text(total.memory_bytes), facts.shards,
                      facts.shards == 1 ? "" : "s");
  for (const auto& [reason, amount] : skipped_by_reason(facts.placement)) {
    text += fmt::format("skipped: {} tensors, {}: {}\n", amount.first, bytes_text(amount.second),
                        reason);
  }
  return text;
}

std::string facts_json(const ModelFacts& facts) {
  Json state = Json::array();
  for (const StateRow& entry : facts.state) {
    state.push_back({{"cache_format", entry.cache_format},
                     {"fixed_bytes", entry.fixed_bytes},
                     {"bytes_per_token", entry.bytes_per_token}});
  }
  Json skipped = Json::array();
  for (const auto& [reason, amount] : skipped_by_reason(facts.placement)) {
    skipped.push_back(
        {{"reason", reason}, {"tensors", amount.first}, {"file_bytes", amount.second}});
  }
  const PlacementTotal total = facts.placement.total();
  return dump_json({{"model", facts.path},
                    {"family", facts.family},
                    {"parameters",
                     {{"total", facts.parameters},
                      {"active", facts.active},
                      {"drafts", facts.draft_parameters}}},
                    {"hidden_size", facts.hidden},
                    {"vocab_size", facts.vocab},
                    {"context_length", facts.context},
                    {"layers", layers_json(facts)},
                    {"draft_layers", facts.drafts},
                    {"state", std::move(state)},
                    {"text", text_json(facts.text)},
                    {"bytes",
                     {{"file", total.file_bytes},
                      {"memory", total.memory_bytes},
                      {"files", facts.shards},
                      {"by_part", totals_json(facts.placement.by_part())},
                      {"by_format", totals_json(facts.placement.by_format())},
                      {"by_kind", totals_json(facts.placement.by_kind())}}},
                    {"skipped", std::move(skipped)}});
}

}  // namespace motley
