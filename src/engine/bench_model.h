// Speed of a loaded model on random tokens, held against what the machine can reach.
//
// Prefill runs the prompt in chunks; decode runs one row a step after it, each with a random token,
// so that routed experts vary as in real text. Needs no tokenizer.
// Thread rule: one thread; nothing else should run on the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/draft/draft_stats.h"
#include "engine/engine.h"
#include "engine/stream_report.h"
#include "engine/token_cost.h"
#include "ops/cpu/peak_rates.h"

namespace motley {

// What was measured with a number of threads.
constexpr int64_t kAutoReadBytes = -1;

struct MachineRates {
  int threads = 0;
  double read_bytes_per_s = 0;
  std::vector<PeakRate> peaks;
};

struct MachineRatesOptions {
  CpuIsa isa = CpuIsa::kPortable;
  int threads = 1;  // the most; also measured: 1 and the powers of two below
  int64_t read_bytes = kAutoReadBytes;
  std::function<void(const std::string& stage)> progress;
};
// In ascending order of threads.
Result<std::vector<MachineRates>> measure_machine(const Clock& clock,
                                                  const MachineRatesOptions& options);

struct BenchOptions {
  int64_t prompt_tokens = 512;
  int64_t generate_tokens = 64;
  int64_t repeat = 3;
  int64_t prefill_chunk = 512;
  uint64_t seed = 1;
  // More than 0: decodes the model's own greedy continuation, with as many drafts a step.
  int drafts = 0;
  bool draft_auto = false;  // at most as many, as it pays
  // Buffer whose reading is timed between decoded tokens; 0: none, kAutoReadBytes: by cache and
  // memory.
  int64_t read_bytes = 0;
  StepObserver* observer = nullptr;  // of every step; null: nobody
  std::function<void(const std::string& stage)> progress;
};

struct BenchRun {
  double prefill_s = 0;
  double decode_s = 0;
  // Bytes a second read from memory in passes between the decoded tokens, which decode_s leaves
  // out: the mean over the same stretch of time, and so of the same neighbours. 0: not measured.
  double read_bytes_per_s = 0;
  // Of the bits of all logits, in order: equal for equal seeds and lengths on any budget of memory.
  uint64_t logits_hash = 0;
  // When experts are streamed.
  StreamStretch prefill_stream;
  StreamStretch decode_stream;
  DraftStats drafts;
  std::string draft_choice;  // what draft_auto found
};

struct ModelBench {
  std::string model;
  std::string numerics;
  int threads = 0;
  double load_s = 0;  // set by the caller
  BenchOptions options;
  std::vector<BenchRun> runs;
  TokenCost cost;
  std::vector<MachineRates> machine;  // set by the caller; may be empty
  std::string stream_lines;           // what streaming did in the fastest runs; empty: nothing
  std::string stream_object;          // the same as JSON
  std::string matrix_numbers;         // which peak the prefill is held against: "int8", ...

  DraftStats drafts() const;  // of all runs
  // Of the fastest run.
  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
  const BenchRun* fastest_prefill() const;
  const BenchRun* fastest_decode() const;
  // Of the rate that the memory sustained during the fastest decode; 0 without a measurement.
  double bandwidth_share() const;
  // Bytes that a token reads, at the middle of the decoded stretch.
  int64_t bytes_per_token() const;
  double decode_bytes_per_s() const;
  double prefill_multiply_adds_per_s() const;
  // Of the rates with the most threads; 0 without a measurement.
  double peak_bandwidth_share() const;
  double matrix_share() const;

  std::string table() const;
  std::string json() const;
};

// kInvalidArgument when prompt and generated tokens exceed the context.
Result<ModelBench> bench_model(Engine& engine, const BenchOptions& options);

}  // namespace motley
