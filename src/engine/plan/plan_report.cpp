// The table and the JSON of model_plan.h.
#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/model_plan.h"
#include "spec/config_json.h"

namespace motley {
namespace {

double giga(double value) {
  return value * 1e-9;
}

double giga(int64_t value) {
  return giga(static_cast<double>(value));
}

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("{:<15} {}\n", name, value);
}

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string memory_table(const ModelPlan& plan) {
  std::string text;
  for (const std::string& line : plan.memory.lines()) text += line + "\n";
  const MemoryNeeds& needs = plan.memory.needs;
  if (needs.expert_count == 0) return text;
  return text + fmt::format("{:<14}{:>9.3f} GB  {} of {} experts; a smaller --memory is refused\n",
                            "floor", giga(plan.floor_bytes), needs.floor_slots(),
                            needs.expert_count);
}

std::string decode_table(const ModelPlan& plan) {
  const DecodePrediction& decode = *plan.decode;
  std::string text = row("decode", fmt::format("{:.1f} tok/s after {} tokens",
                                               decode.tokens_per_s(), plan.decode_context));
  if (plan.memory.streamed) {
    text += row("", fmt::format("{:.3f} GB read a token, {:.1f} % hits ({})",
                                giga(decode.drive_bytes), 100 * plan.hit_share, plan.hit_source));
  }
  return text;
}

std::string prefill_table(const ModelPlan& plan) {
  std::string text;
  for (const PrefillPrediction& prefill : plan.prefill) {
    std::string how = fmt::format("{:.1f} s", prefill.time.total_s());
    if (plan.memory.streamed) {
      how += fmt::format(", {:.1f} GB read {}", giga(prefill.drive_bytes),
                         prefill.is_swept ? "layer by layer" : "as needed");
    }
    text += row(fmt::format("prefill {}", prefill.tokens),
                fmt::format("{:.1f} tok/s ({}), bound by the {}", prefill.tokens_per_s(), how,
                            prefill.time.binding()));
  }
  return text;
}

std::string bound_table(const ModelPlan& plan) {
  const TimeParts& time = plan.decode->time;
  const double whole = time.total_s();
  std::string parts;
  if (plan.memory.streamed) {
    parts = fmt::format("{:.0f} % of a token waits for the drive, ", percent(time.drive_s, whole));
  }
  parts += fmt::format("{:.0f} % reads memory, {:.0f} % is the processor beyond that",
                       percent(time.memory_s, whole), percent(time.compute_s, whole));
  return row("bound by", fmt::format("{}: {}", time.binding(), parts));
}

std::string rates_table(const ModelPlan& plan) {
  const ModelRates& rates = *plan.rates;
  std::string text = row("memory", fmt::format("{:.1f} GB/s with {} threads, {:.1f} with one",
                                               giga(rates.read_all_bytes_per_s), rates.threads,
                                               giga(rates.read_one_bytes_per_s)));
  if (plan.drive.has_value()) {
    const DriveProbe& drive = *plan.drive;
    std::string depths;
    for (const DriveRate& rate : drive.random) {
      depths += fmt::format("{}{:.2f} at {}", depths.empty() ? "" : ", ",
                            giga(rate.bytes_per_second), rate.depth);
    }
    text += row("drive", fmt::format("{:.2f} GB/s in order; experts of {:.2f} MB in {} reads: {}",
                                     giga(drive.sequential_bytes_per_second),
                                     static_cast<double>(plan.memory.needs.slot_bytes) * 1e-6,
                                     plan.parts, depths));
    text += row("", fmt::format("by {}, {}", drive.backend,
                                drive.is_direct ? "direct" : "buffered: " + drive.reason));
  }
  const bool all_cached = plan.rates_cached && (plan.drive_cached || !plan.drive.has_value());
  return text + row("", all_cached ? "measured before; --probe measures again" : "measured now");
}

std::string advice_table(const ModelPlan& plan) {
  std::string text;
  for (const Advice& advice : plan.advice) {
    text += row(text.empty() ? "would help" : "",
                fmt::format("{}: {:.1f} tok/s in decode (x{:.2f})", advice.change,
                            advice.tokens_per_s, advice.factor));
  }
  return text;
}

std::string parts_json(const TimeParts& time) {
  return fmt::format(
      "\"seconds\": {:.6e}, \"drive_s\": {:.6e}, \"memory_s\": {:.6e}, \"compute_s\": {:.6e}, "
      "\"bound_by\": {}",
      time.total_s(), time.drive_s, time.memory_s, time.compute_s, json_quote(time.binding()));
}

std::string memory_json(const ModelPlan& plan) {
  const MemoryPlan& memory = plan.memory;
  const MemoryNeeds& needs = memory.needs;
  return fmt::format(
      "{{\"budget_bytes\": {}, \"total_bytes\": {}, \"floor_bytes\": {}, \"dense_bytes\": {},\n"
      "    \"state_bytes\": {}, \"activation_bytes\": {}, \"program_bytes\": {},\n"
      "    \"streamed\": {}, \"expert_bytes\": {}, \"experts\": {}, \"expert_layers\": {},\n"
      "    \"experts_per_token\": {}, \"slots\": {}, \"slot_bytes\": {}, \"cache_bytes\": {}}}",
      memory.budget_bytes, memory.total_bytes(), plan.floor_bytes, needs.dense_bytes,
      needs.state_bytes, needs.activation_bytes, needs.process_bytes, memory.streamed,
      needs.expert_bytes, needs.expert_count, needs.expert_layers, needs.experts_per_token,
      memory.slots, needs.slot_bytes, memory.cache_bytes());
}

std::string rates_json(const ModelPlan& plan) {
  if (!plan.rates.has_value()) return "null";
  const ModelRates& rates = *plan.rates;
  std::string text = fmt::format(
      "{{\"cached\": {}, \"read_one_bytes_per_s\": {:.4e}, \"read_all_bytes_per_s\": {:.4e},\n"
      "    \"chunk_tokens\": {}, \"head_s\": {:.6e}, \"kinds\": [",
      plan.rates_cached, rates.read_one_bytes_per_s, rates.read_all_bytes_per_s, rates.chunk_tokens,
      rates.head_s);
  for (size_t i = 0; i < rates.kinds.size(); ++i) {
    const KindRates& kind = rates.kinds[i];
    text += fmt::format(
        "{}\n      {{\"name\": {}, \"layers\": {}, \"dense_bytes\": {}, \"one_expert_bytes\": {},\n"
        "       \"decode_s\": {:.6e}, \"decode_per_context_s\": {:.6e}, \"experts_s\": {:.6e},\n"
        "       \"expert_alone_s\": {:.6e}, \"prefill_s\": {:.6e}, \"prefill_per_position_s\": "
        "{:.6e},\n       \"prefill_experts_s\": {:.6e}}}",
        i == 0 ? "" : ",", json_quote(plan.kinds[i].name), plan.kinds[i].count(),
        plan.kinds[i].dense_bytes, plan.kinds[i].one_expert_bytes, kind.decode_s,
        kind.decode_per_context_s, kind.experts_s, kind.expert_alone_s, kind.prefill_s,
        kind.prefill_per_position_s, kind.prefill_experts_s);
  }
  return text + "]}";
}

std::string drive_json(const ModelPlan& plan) {
  if (!plan.drive.has_value()) return "null";
  const DriveProbe& drive = *plan.drive;
  std::string depths;
  for (const DriveRate& rate : drive.random) {
    depths += fmt::format("{}{{\"depth\": {}, \"bytes_per_s\": {:.4e}}}",
                          depths.empty() ? "" : ", ", rate.depth, rate.bytes_per_second);
  }
  return fmt::format(
      "{{\"cached\": {}, \"drive\": {}, \"reads_by\": {}, \"is_direct\": {}, \"reason\": {},\n"
      "    \"reads_per_expert\": {}, \"sequential_bytes_per_s\": {:.4e}, \"random\": [{}]}}",
      plan.drive_cached, json_quote(drive.drive), json_quote(drive.backend), drive.is_direct,
      json_quote(drive.reason), plan.parts, drive.sequential_bytes_per_second, depths);
}

std::string prediction_json(const ModelPlan& plan) {
  if (!plan.decode.has_value()) return "null";
  const DecodePrediction& decode = *plan.decode;
  std::string text = fmt::format(
      "{{\"hit_share\": {:.4f}, \"hit_source\": {},\n    \"decode\": {{\"context\": {}, "
      "\"tokens_per_s\": {:.3f}, \"drive_bytes\": {:.1f}, \"memory_bytes\": {:.1f}, {}}},\n"
      "    \"prefill\": [",
      plan.hit_share, json_quote(plan.hit_source), plan.decode_context, decode.tokens_per_s(),
      decode.drive_bytes, decode.memory_bytes, parts_json(decode.time));
  for (const PrefillPrediction& prefill : plan.prefill) {
    text += fmt::format(
        "{}\n      {{\"tokens\": {}, \"tokens_per_s\": {:.3f}, \"drive_bytes\": {:.1f}, "
        "\"swept\": {}, {}}}",
        &prefill == plan.prefill.data() ? "" : ",", prefill.tokens, prefill.tokens_per_s(),
        prefill.drive_bytes, prefill.is_swept, parts_json(prefill.time));
  }
  text += "],\n    \"advice\": [";
  for (const Advice& advice : plan.advice) {
    text += fmt::format(
        "{}\n      {{\"change\": {}, \"decode_tokens_per_s\": {:.3f}, \"factor\": {:.3f}}}",
        &advice == plan.advice.data() ? "" : ",", json_quote(advice.change), advice.tokens_per_s,
        advice.factor);
  }
  return text + "]}";
}

}  // namespace

std::string ModelPlan::table() const {
  std::string text =
      fmt::format("{}: {}, {} threads of {}\n\n", model, numerics, threads, processor);
  text += memory_table(*this);
  if (decode.has_value()) {
    text += "\n" + decode_table(*this) + prefill_table(*this) + bound_table(*this);
    text += advice_table(*this);
  }
  if (rates.has_value()) text += "\n" + rates_table(*this);
  for (const std::string& each : notes) text += row("note", each);
  return text;
}

std::string ModelPlan::json() const {
  std::string list;
  for (const std::string& each : notes) list += (list.empty() ? "" : ", ") + json_quote(each);
  return fmt::format(
      "{{\n  \"model\": {},\n  \"processor\": {},\n  \"numerics\": {},\n  \"threads\": {},\n"
      "  \"memory\": {},\n  \"prediction\": {},\n  \"rates\": {},\n  \"drive\": {},\n"
      "  \"notes\": [{}]\n}}\n",
      json_quote(model), json_quote(processor), json_quote(numerics), threads, memory_json(*this),
      prediction_json(*this), rates_json(*this), drive_json(*this), list);
}

}  // namespace motley
