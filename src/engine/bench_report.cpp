// Derived figures, table and JSON of bench_model.h.
#include <fmt/format.h>

#include <algorithm>

#include "engine/bench_model.h"
#include "spec/config_json.h"

namespace motley {
namespace {

const BenchRun* fastest(const std::vector<BenchRun>& runs, double BenchRun::* seconds) {
  const BenchRun* best = nullptr;
  for (const BenchRun& run : runs) {
    if (run.*seconds > 0 && (best == nullptr || run.*seconds < best->*seconds)) best = &run;
  }
  return best;
}

double rate_of(int64_t tokens, const BenchRun* run, double BenchRun::* seconds) {
  return run == nullptr ? 0 : static_cast<double>(tokens) / (run->*seconds);
}

// The rate of a unit, or 0.
double peak_of(const MachineRates& rates, std::string_view numbers) {
  double best = 0;
  for (const PeakRate& peak : rates.peaks) {
    if (peak.numbers == numbers) best = std::max(best, peak.multiply_adds_per_s);
  }
  return best;
}

std::string percent(double share) {
  return share > 0 ? fmt::format("{:.1f} %", 100 * share) : "not measured";
}

std::string machine_table(const std::vector<MachineRates>& machine) {
  if (machine.empty()) return "";
  std::string text = fmt::format("{:>7}  {:>12}", "threads", "memory GB/s");
  for (const PeakRate& peak : machine.front().peaks) {
    text += fmt::format("  {:>16}", peak.numbers + " GMAC/s");
  }
  text += '\n';
  for (const MachineRates& rates : machine) {
    text += fmt::format("{:>7}  {:>12.1f}", rates.threads, rates.read_bytes_per_s * 1e-9);
    for (const PeakRate& peak : rates.peaks) {
      text += fmt::format("  {:>16.1f}", peak.multiply_adds_per_s * 1e-9);
    }
    text += '\n';
  }
  return text + '\n';
}

std::string machine_json(const std::vector<MachineRates>& machine) {
  std::string text = "[";
  for (const MachineRates& rates : machine) {
    text += fmt::format("{}\n    {{\"threads\": {}, \"read_bytes_per_s\": {:.4e}, \"peaks\": [",
                        text.size() == 1 ? "" : ",", rates.threads, rates.read_bytes_per_s);
    for (size_t i = 0; i < rates.peaks.size(); ++i) {
      const PeakRate& peak = rates.peaks[i];
      text +=
          fmt::format("{}{{\"instruction\": {}, \"numbers\": {}, \"multiply_adds_per_s\": {:.4e}}}",
                      i == 0 ? "" : ", ", json_quote(peak.instruction), json_quote(peak.numbers),
                      peak.multiply_adds_per_s);
    }
    text += "]}";
  }
  return text + "]";
}

}  // namespace

double ModelBench::prefill_tokens_per_s() const {
  return rate_of(options.prompt_tokens, fastest_prefill(), &BenchRun::prefill_s);
}

double ModelBench::decode_tokens_per_s() const {
  return rate_of(options.generate_tokens, fastest_decode(), &BenchRun::decode_s);
}

DraftStats ModelBench::drafts() const {
  DraftStats all;
  for (const BenchRun& run : runs) all += run.drafts;
  return all;
}

const BenchRun* ModelBench::fastest_prefill() const {
  return fastest(runs, &BenchRun::prefill_s);
}

const BenchRun* ModelBench::fastest_decode() const {
  return fastest(runs, &BenchRun::decode_s);
}

int64_t ModelBench::bytes_per_token() const {
  return cost.decode_bytes(options.prompt_tokens + options.generate_tokens / 2);
}

double ModelBench::decode_bytes_per_s() const {
  // Tokens that are verified together share what they read.
  if (options.drafts > 0) return 0;
  return decode_tokens_per_s() * static_cast<double>(bytes_per_token());
}

double ModelBench::prefill_multiply_adds_per_s() const {
  return prefill_tokens_per_s() * static_cast<double>(cost.prefill_multiply_adds);
}

double ModelBench::bandwidth_share() const {
  const BenchRun* run = fastest_decode();
  if (run == nullptr || run->read_bytes_per_s <= 0) return 0;
  return decode_bytes_per_s() / run->read_bytes_per_s;
}

double ModelBench::peak_bandwidth_share() const {
  if (machine.empty() || machine.back().read_bytes_per_s <= 0) return 0;
  return decode_bytes_per_s() / machine.back().read_bytes_per_s;
}

double ModelBench::matrix_share() const {
  const double peak = machine.empty() ? 0 : peak_of(machine.back(), matrix_numbers);
  return peak > 0 ? prefill_multiply_adds_per_s() / peak : 0;
}

std::string ModelBench::table() const {
  std::string text =
      fmt::format("{}: {}, {} threads, loaded in {:.1f} s\n\n", model, numerics, threads, load_s);
  text += machine_table(machine);
  text +=
      fmt::format("prefill  {} tokens  {:.1f} tok/s  {:.1f} GMAC/s  {} of the {} rate\n",
                  options.prompt_tokens, prefill_tokens_per_s(),
                  prefill_multiply_adds_per_s() * 1e-9, percent(matrix_share()), matrix_numbers);
  text += fmt::format("decode   {} tokens  {:.1f} tok/s", options.generate_tokens,
                      decode_tokens_per_s());
  if (options.drafts == 0) {
    text += fmt::format("  {:.2f} GB/s  {} of the memory rate", decode_bytes_per_s() * 1e-9,
                        percent(bandwidth_share()));
  }
  text += '\n';
  if (bandwidth_share() > 0) {
    text +=
        fmt::format("memory   {:.2f} GB/s on average between those tokens; best pass above: {}\n",
                    fastest_decode()->read_bytes_per_s * 1e-9, percent(peak_bandwidth_share()));
  }
  text += fmt::format("a decoded token reads {:.1f} MB: weights {:.1f}, state {:.1f}\n",
                      static_cast<double>(bytes_per_token()) * 1e-6,
                      static_cast<double>(cost.weight_bytes) * 1e-6,
                      static_cast<double>(bytes_per_token() - cost.weight_bytes) * 1e-6);
  if (options.drafts > 0) {
    text += draft_text(drafts()) + "\n";
    const std::string& choice = fastest_decode()->draft_choice;
    if (!choice.empty()) text += "auto     " + choice + "\n";
  }
  return text + stream_lines + fmt::format("best of {} runs\n", runs.size());
}

std::string ModelBench::json() const {
  std::string list;
  for (const BenchRun& run : runs) {
    list += fmt::format(
        "{}{{\"prefill_s\": {:.6f}, \"decode_s\": {:.6f}, \"read_bytes_per_s\": {:.4e}, "
        "\"logits_hash\": \"{:016x}\"}}",
        list.empty() ? "" : ", ", run.prefill_s, run.decode_s, run.read_bytes_per_s,
        run.logits_hash);
  }
  std::string text = fmt::format(
      "{{\n  \"model\": {},\n  \"numerics\": {},\n  \"threads\": {},\n  \"load_s\": {:.3f},\n",
      json_quote(model), json_quote(numerics), threads, load_s);
  text += fmt::format(
      "  \"prompt_tokens\": {},\n  \"generate_tokens\": {},\n  \"prefill_chunk\": {},\n"
      "  \"prefill_tokens_per_s\": {:.3f},\n  \"decode_tokens_per_s\": {:.3f},\n",
      options.prompt_tokens, options.generate_tokens, options.prefill_chunk, prefill_tokens_per_s(),
      decode_tokens_per_s());
  text += fmt::format(
      "  \"bytes_per_token\": {},\n  \"weight_bytes_per_token\": {},\n"
      "  \"state_fixed_bytes\": {},\n  \"state_bytes_per_context_token\": {},\n"
      "  \"decode_bytes_per_s\": {:.4e},\n  \"bandwidth_share\": {:.4f},\n"
      "  \"peak_bandwidth_share\": {:.4f},\n",
      bytes_per_token(), cost.weight_bytes, cost.state_fixed_bytes, cost.state_bytes_per_token,
      decode_bytes_per_s(), bandwidth_share(), peak_bandwidth_share());
  text += fmt::format(
      "  \"prefill_multiply_adds_per_token\": {},\n  \"prefill_multiply_adds_per_s\": {:.4e},\n"
      "  \"matrix_numbers\": {},\n  \"matrix_share\": {:.4f},\n",
      cost.prefill_multiply_adds, prefill_multiply_adds_per_s(), json_quote(matrix_numbers),
      matrix_share());
  text += fmt::format("  \"drafts\": {},\n", draft_json(options.drafts, drafts()));
  text += fmt::format("  \"streaming\": {},\n", stream_object.empty() ? "null" : stream_object);
  return text +
         fmt::format("  \"machine\": {},\n  \"runs\": [{}]\n}}\n", machine_json(machine), list);
}

}  // namespace motley
