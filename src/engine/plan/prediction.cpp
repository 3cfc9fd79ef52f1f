#include "engine/plan/prediction.h"

#include <algorithm>
#include <cmath>

namespace motley {
namespace {

double as_double(int64_t value) {
  return static_cast<double>(value);
}

// Splits work that reads `bytes` into the memory's part and the processor's.
void add_work(double seconds, double bytes, double bytes_per_s, TimeParts* time) {
  const double memory_s = std::min(seconds, bytes / bytes_per_s);
  time->memory_s += memory_s;
  time->compute_s += seconds - memory_s;
}

void add(const TimeParts& part, double times, TimeParts* whole) {
  whole->drive_s += times * part.drive_s;
  whole->memory_s += times * part.memory_s;
  whole->compute_s += times * part.compute_s;
}

// Probability of m successes in n independent trials of probability p.
double binomial(int n, int m, double p) {
  if (p <= 0 || p >= 1) return m == (p >= 1 ? n : 0) ? 1 : 0;
  const double log_ways = std::lgamma(n + 1.0) - std::lgamma(m + 1.0) - std::lgamma(n - m + 1.0);
  return std::exp(log_ways + m * std::log(p) + (n - m) * std::log1p(-p));
}

// One layer of a token whose experts are streamed.
class StreamedLayer {
 public:
  StreamedLayer(const PredictionInput& input, const LayerKind& kind, const KindRates& rates)
      : input_(input), kind_(kind), rates_(rates) {}

  // Time of the experts when `misses` of them must be read.
  TimeParts experts(int misses) const {
    const int wanted = kind_.experts_per_token;
    const double hits_s = rates_.experts_s * (wanted - misses) / wanted;
    TimeParts time;
    const double bytes_per_s = input_.rates.read_all_bytes_per_s;
    const double work_s = hits_s + misses * rates_.expert_alone_s;
    add_work(work_s, as_double(wanted * kind_.one_expert_bytes), bytes_per_s, &time);
    if (misses == 0) return time;
    // The last one to arrive is computed when all else is done.
    const double meanwhile_s = work_s - rates_.expert_alone_s;
    const double read_s = read_seconds(*input_.drive, misses, input_.plan.needs.slot_bytes);
    time.drive_s = std::max(read_s - meanwhile_s, 0.0);
    return time;
  }

  TimeParts expected() const {
    TimeParts time;
    for (int misses = 0; misses <= kind_.experts_per_token; ++misses) {
      add(experts(misses), binomial(kind_.experts_per_token, misses, 1 - input_.hit_share), &time);
    }
    return time;
  }

 private:
  const PredictionInput& input_;
  const LayerKind& kind_;
  const KindRates& rates_;
};

// Experts that `tokens` tokens touch when each chooses evenly, as a share of all.
double touched_share(const LayerKind& kind, int64_t tokens) {
  const double missed = 1 - static_cast<double>(kind.experts_per_token) / kind.experts;
  return 1 - std::pow(missed, as_double(tokens));
}

struct PrefillWork {
  double dense_s = 0;
  double experts_s = 0;
  double bytes = 0;  // of weights that are read from memory

  double total_s() const { return dense_s + experts_s; }
};

// A chunk of `rows` tokens with `first` tokens before it.
PrefillWork chunk_work(const ModelRates& all, const LayerKind& kind, const KindRates& rates,
                       int64_t rows, int64_t first) {
  const double part = as_double(rows) / as_double(all.chunk_tokens);
  PrefillWork work;
  work.dense_s = part * (rates.prefill_s + rates.prefill_per_position_s * as_double(first));
  work.bytes = as_double(kind.dense_bytes);
  if (kind.experts == 0) return work;
  const double expert_bytes = touched_share(kind, rows) * as_double(kind.experts_bytes());
  work.bytes += expert_bytes;
  work.experts_s =
      std::max(part * rates.prefill_experts_s, expert_bytes / all.read_all_bytes_per_s);
  return work;
}

// How a swept layer's reads fall beside the work.
struct SweepRoom {
  bool holds_layer = false;  // else every chunk reads the layer again
  double ahead = 0;          // share of the next layer that is read while this one computes
};

SweepRoom sweep_room(const MemoryPlan& plan, const LayerKind& kind) {
  const int64_t others = plan.needs.floor_slots() - plan.needs.experts_per_token;
  const int64_t largest = plan.slots - others;
  if (largest < kind.experts) return {};
  return {true, std::min(1.0, as_double(largest - kind.experts) / kind.experts)};
}

int64_t chunks_in(int64_t tokens, int64_t chunk) {
  return (tokens + chunk - 1) / chunk;
}

// Adds what all layers of a kind take for a whole prompt.
void add_kind(const PredictionInput& input, size_t index, int64_t chunk,
              PrefillPrediction* prediction) {
  const LayerKind& kind = input.kinds[index];
  const double bytes_per_s = input.rates.read_all_bytes_per_s;
  const bool is_read = input.plan.streamed && kind.experts > 0;
  const double misses = is_read ? 1 - input.hit_share : 0;
  // A sweep pushes out what later layers would have found: measured 12 % hits with 34 % in memory.
  const double swept_misses = is_read ? 1 - std::pow(even_hit_share(input.plan), 2) : 0;
  PrefillWork all;
  double wait_s = 0;
  double read_bytes = 0;
  for (int64_t first = 0; first < prediction->tokens; first += chunk) {
    const int64_t rows = std::min(chunk, prediction->tokens - first);
    const PrefillWork work = chunk_work(input.rates, kind, input.rates.kinds[index], rows, first);
    all.dense_s += work.dense_s;
    all.experts_s += work.experts_s;
    all.bytes += work.bytes;
    if (!is_read || prediction->is_swept) continue;
    const double bytes = misses * touched_share(kind, rows) * as_double(kind.experts_bytes());
    read_bytes += bytes;
    wait_s += std::max(bytes / input.drive->best_bytes_per_second() - work.experts_s, 0.0);
  }
  if (is_read && prediction->is_swept) {
    const SweepRoom room = sweep_room(input.plan, kind);
    const int64_t passes = room.holds_layer ? 1 : chunks_in(prediction->tokens, chunk);
    read_bytes = swept_misses * as_double(passes * kind.experts_bytes());
    const double read_s = read_bytes / input.drive->sequential_bytes_per_second;
    const double beside_s = room.ahead * all.total_s() + (1 - room.ahead) * all.experts_s;
    wait_s = std::max(read_s - beside_s, 0.0);
  }
  TimeParts time{.drive_s = wait_s};
  add_work(all.total_s(), all.bytes, bytes_per_s, &time);
  add(time, kind.count(), &prediction->time);
  prediction->drive_bytes += kind.count() * read_bytes;
}

}  // namespace

std::string_view TimeParts::binding() const {
  if (drive_s >= memory_s && drive_s >= compute_s) return "drive";
  return memory_s >= compute_s ? "memory" : "processor";
}

double read_seconds(const DriveProbe& drive, int reads, int64_t bytes) {
  MOTLEY_CHECK(!drive.random.empty() && reads > 0, "nothing to read, or no rate for it");
  const DriveRate* below = &drive.random.front();
  double rate = drive.random.back().bytes_per_second;
  for (const DriveRate& at : drive.random) {
    if (at.depth < reads) {
      below = &at;
      continue;
    }
    const double span = at.depth - below->depth;
    const double share = span > 0 ? (reads - below->depth) / span : 0;
    rate = below->bytes_per_second + share * (at.bytes_per_second - below->bytes_per_second);
    break;
  }
  return as_double(reads * bytes) / rate;
}

DecodePrediction predict_decode(const PredictionInput& input, int64_t context) {
  const ModelRates& all = input.rates;
  DecodePrediction prediction;
  for (size_t i = 0; i < input.kinds.size(); ++i) {
    const LayerKind& kind = input.kinds[i];
    const KindRates& rates = all.kinds[i];
    const double dense_s = std::max(
        rates.decode_s + rates.decode_per_context_s * as_double(context - all.near_tokens), 0.0);
    // State of linear attention is read and written.
    const double dense_bytes = as_double(kind.dense_bytes + 2 * kind.state_fixed_bytes +
                                         context * kind.state_bytes_per_token);
    const double expert_bytes = as_double(kind.experts_per_token * kind.one_expert_bytes);
    TimeParts layer;
    add_work(dense_s, dense_bytes, all.read_all_bytes_per_s, &layer);
    if (kind.experts > 0 && input.plan.streamed) {
      add(StreamedLayer(input, kind, rates).expected(), 1, &layer);
      prediction.drive_bytes += kind.count() * (1 - input.hit_share) * kind.experts_per_token *
                                as_double(input.plan.needs.slot_bytes);
    } else if (kind.experts > 0) {
      add_work(rates.experts_s, expert_bytes, all.read_all_bytes_per_s, &layer);
    }
    add(layer, kind.count(), &prediction.time);
    prediction.memory_bytes += kind.count() * (dense_bytes + expert_bytes);
  }
  const double head_bytes = as_double(all.head_bytes);
  add_work(all.head_s, head_bytes, all.read_all_bytes_per_s, &prediction.time);
  prediction.memory_bytes += head_bytes;
  return prediction;
}

PrefillPrediction predict_prefill(const PredictionInput& input, int64_t tokens, int64_t chunk) {
  PrefillPrediction prediction{.tokens = tokens};
  prediction.is_swept = input.plan.streamed && choose_sweep(input.plan.needs, tokens, chunk).sweep;
  for (size_t i = 0; i < input.kinds.size(); ++i) add_kind(input, i, chunk, &prediction);
  add_work(input.rates.head_s, as_double(input.rates.head_bytes), input.rates.read_all_bytes_per_s,
           &prediction.time);
  return prediction;
}

double even_hit_share(const MemoryPlan& plan) {
  if (!plan.streamed || plan.needs.expert_count == 0) return 1;
  return as_double(plan.slots) / as_double(plan.needs.expert_count);
}

double heat_hit_share(const MemoryPlan& plan, const HeatTable& heat) {
  if (!plan.streamed) return 1;
  const auto experts = static_cast<size_t>(heat.experts);
  const int floor = std::min(plan.needs.experts_per_token, heat.experts);
  double whole = 0;
  double kept = 0;
  std::vector<float> rest;  // beyond each layer's floor
  for (size_t layer = 0; layer < static_cast<size_t>(heat.layers); ++layer) {
    std::vector<float> uses(
        heat.uses_per_step.begin() + static_cast<int64_t>(layer * experts),
        heat.uses_per_step.begin() + static_cast<int64_t>((layer + 1) * experts));
    std::sort(uses.begin(), uses.end(), std::greater<>());
    for (size_t i = 0; i < uses.size(); ++i) {
      whole += uses[i];
      if (i < static_cast<size_t>(floor)) {
        kept += uses[i];
      } else {
        rest.push_back(uses[i]);
      }
    }
  }
  if (whole <= 0) return even_hit_share(plan);
  std::sort(rest.begin(), rest.end(), std::greater<>());
  const int64_t free_slots = plan.slots - int64_t{heat.layers} * floor;
  const auto taken = std::clamp<int64_t>(free_slots, 0, std::ssize(rest));
  for (int64_t i = 0; i < taken; ++i) kept += rest[static_cast<size_t>(i)];
  return kept / whole;
}

}  // namespace motley
