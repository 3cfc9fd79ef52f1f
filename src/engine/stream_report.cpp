#include "engine/stream_report.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "spec/config_json.h"

namespace motley {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

struct Figures {
  double hit_share = 0;    // of the experts wanted
  double ahead_share = 0;  // of the experts wanted
  double bytes_per_token = 0;
  double bytes_per_s = 0;       // over the whole stretch
  double busy_bytes_per_s = 0;  // while a read was in flight
  double wait_share = 0;
  double experts_share = 0;
};

Figures figures(const StreamStretch& stretch) {
  const StreamStats& stats = stretch.stats;
  const auto bytes = static_cast<double>(stats.read_bytes);
  return {
      .hit_share = ratio(static_cast<double>(stats.hits), static_cast<double>(stats.uses)),
      .ahead_share = ratio(static_cast<double>(stats.ahead_used), static_cast<double>(stats.uses)),
      .bytes_per_token = ratio(bytes, static_cast<double>(stretch.tokens)),
      .bytes_per_s = ratio(bytes, stretch.seconds),
      .busy_bytes_per_s = ratio(bytes, stats.busy_s),
      .wait_share = ratio(stats.wait_s, stretch.seconds),
      .experts_share = ratio(stats.compute_s, stretch.seconds)};
}

StreamStats stats_of(const Engine& engine) {
  const StreamedExpertStore* store = engine.streamed_experts();
  return store == nullptr ? StreamStats{} : store->stats();
}

// Of the only drive that experts come from; 0 when there are several, or no probe is known.
double probed_rate(const Engine& engine, const std::string& drive_cache) {
  const StreamedExpertStore* store = engine.streamed_experts();
  const std::vector<std::string>& packed = engine.options().packed;
  if (store == nullptr || packed.size() > 1) return 0;
  const std::string place = packed.empty() ? engine.options().model.string() : packed.front();
  const auto probe =
      find_drive_probe(engine.context().faults, place, store->slot_bytes(), drive_cache);
  return probe.has_value() ? probe->best_bytes_per_second() : 0;
}

std::string probed_text(double bytes_per_s, double probed_bytes_per_s) {
  if (probed_bytes_per_s <= 0) return "";
  return fmt::format(", {:.0f} % of its probe", 100 * bytes_per_s / probed_bytes_per_s);
}

std::string probed_json(double bytes_per_s, double probed_bytes_per_s) {
  if (probed_bytes_per_s <= 0) return "\"probed_bytes_per_s\": null, \"probed_share\": null, ";
  return fmt::format("\"probed_bytes_per_s\": {:.4e}, \"probed_share\": {:.4f}, ",
                     probed_bytes_per_s, bytes_per_s / probed_bytes_per_s);
}

}  // namespace

StreamMeter::StreamMeter(const Engine& engine, std::string drive_cache)
    : engine_(engine),
      drive_cache_(std::move(drive_cache)),
      start_(stats_of(engine)),
      start_ns_(engine.context().clock.now_ns()) {}

StreamStretch StreamMeter::stretch(int64_t tokens) const {
  return {.stats = stats_of(engine_) - start_,
          .tokens = tokens,
          .seconds = seconds_since(engine_.context().clock, start_ns_),
          .probed_bytes_per_s = probed_rate(engine_, drive_cache_)};
}

std::string stream_text(const Engine& engine, const StreamStretch& stretch) {
  const StreamedExpertStore* store = engine.streamed_experts();
  if (store == nullptr) return "";
  const MemoryNeeds& needs = engine.memory_plan().needs;
  const Figures f = figures(stretch);
  return fmt::format(
      "streamed: {} experts a token, {} of {} in memory, {:.1f} % hits, {:.1f} % read ahead ({} "
      "wasted), {} evictions, {:.3f} GB read a token; drive {:.2f} GB/s while reading{}; time: "
      "{:.0f} % waiting for the drive, {:.0f} % experts, {:.0f} % the rest\n",
      needs.experts_per_token, store->slots(), needs.expert_count, 100 * f.hit_share,
      100 * f.ahead_share, stretch.stats.ahead_wasted, stretch.stats.evictions,
      f.bytes_per_token * 1e-9, f.busy_bytes_per_s * 1e-9,
      probed_text(f.busy_bytes_per_s, stretch.probed_bytes_per_s), 100 * f.wait_share,
      100 * f.experts_share, 100 * (1 - f.wait_share - f.experts_share));
}

std::string stream_json(const Engine& engine, const StreamStretch& stretch) {
  const StreamedExpertStore* store = engine.streamed_experts();
  if (store == nullptr) return "null";
  const MemoryPlan& plan = engine.memory_plan();
  const StreamStats& stats = stretch.stats;
  const Figures f = figures(stretch);
  std::string text = fmt::format(
      "{{\"budget_bytes\": {}, \"planned_bytes\": {}, \"slots\": {}, \"slot_bytes\": {}, "
      "\"experts\": {}, \"experts_per_token\": {}, \"reads_by\": {}, ",
      plan.budget_bytes, plan.total_bytes(), store->slots(), store->slot_bytes(),
      plan.needs.expert_count, plan.needs.experts_per_token,
      json_quote(store->reads_description()));
  const GuardStats& guarded = stats.guarded;
  text += fmt::format(
      "\"checked_bytes\": {}, \"check_s\": {:.6f}, \"mismatches\": {}, \"rescued_reads\": {}, ",
      guarded.checked_bytes, guarded.check_s, guarded.mismatches, guarded.rescued);
  text += fmt::format(
      "\"uses\": {}, \"hits\": {}, \"ahead_used\": {}, \"ahead_wasted\": {}, \"evictions\": {}, "
      "\"reads\": {}, \"read_bytes\": {}, "
      "\"retries\": {}, \"hit_share\": {:.4f}, \"bytes_per_token\": {:.1f}, ",
      stats.uses, stats.hits, stats.ahead_used, stats.ahead_wasted, stats.evictions, stats.reads,
      stats.read_bytes, stats.retries, f.hit_share, f.bytes_per_token);
  text += probed_json(f.busy_bytes_per_s, stretch.probed_bytes_per_s);
  return text + fmt::format(
                    "\"bytes_per_s\": {:.4e}, \"busy_bytes_per_s\": {:.4e}, \"busy_s\": {:.6f}, "
                    "\"wait_s\": {:.6f}, \"expert_s\": {:.6f}, \"start_s\": {:.6f}, \"seconds\": "
                    "{:.6f}, \"tokens\": {}}}",
                    f.bytes_per_s, f.busy_bytes_per_s, stats.busy_s, stats.wait_s, stats.compute_s,
                    stats.start_s, stretch.seconds, stretch.tokens);
}

}  // namespace motley
