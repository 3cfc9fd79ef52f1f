#include "engine/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/hash.h"
#include "base/system_memory.h"
#include "base/thread_pool.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "tensor/gguf_weights.h"

namespace motley {
namespace {

constexpr double kStretchSeconds = 0.25;

// Splits what streaming did at the end of the prompt.
class DraftListener final : public GenerationListener {
 public:
  DraftListener(Engine& engine, const BenchOptions& options, BenchRun* run)
      : engine_(engine), options_(options), run_(run), meter_(engine) {}

  bool on_token(const SampledToken&) override {
    if (!decode_meter_) {
      run_->prefill_stream = meter_.stretch(options_.prompt_tokens);
      decode_meter_.emplace(engine_);
    }
    return true;
  }
  void on_finish(FinishReason, const Status& status, const GenerationStats& stats) override {
    status_ = status;
    run_->prefill_s = stats.prefill_s;
    run_->decode_s = stats.decode_s;
    run_->drafts = stats.drafts;
    if (!decode_meter_) return;
    run_->decode_stream = decode_meter_->stretch(options_.generate_tokens);
    run_->decode_stream.seconds = run_->decode_s;
  }
  const Status& status() const { return status_; }

 private:
  Engine& engine_;
  const BenchOptions& options_;
  BenchRun* run_;
  StreamMeter meter_;
  std::optional<StreamMeter> decode_meter_;
  Status status_;
};

class BenchRunner {
 public:
  // `memory` may be null: its rate is not taken then.
  BenchRunner(Engine& engine, const BenchOptions& options, const ReadTest* memory)
      : engine_(engine), options_(options), memory_(memory), runner_(engine) {}

  Result<BenchRun> run(uint64_t seed) {
    const int64_t vocab = engine_.decoder().vocab_size();
    const std::vector<int32_t> tokens =
        random_tokens(options_.prompt_tokens + options_.generate_tokens, vocab, seed);
    const std::span<const int32_t> all(tokens);
    const auto prompt = static_cast<size_t>(options_.prompt_tokens);
    MOTLEY_ASSIGN_OR_RETURN(Sequence sequence, engine_.create_sequence());
    sequence.sync(all.first(prompt));
    if (options_.drafts > 0) return run_with_drafts(sequence);
    const Clock& clock = engine_.context().clock;
    BenchRun result;
    const StreamMeter prefill(engine_);
    const int64_t start_ns = clock.now_ns();
    MOTLEY_RETURN_IF_ERROR(prefill_all(sequence));
    result.prefill_s = seconds_since(clock, start_ns);
    add_logits(&result);
    result.prefill_stream = prefill.stretch(options_.prompt_tokens);
    const StreamMeter decoded(engine_);
    MOTLEY_RETURN_IF_ERROR(decode(sequence, all.subspan(prompt), &result));
    result.decode_stream = decoded.stretch(options_.generate_tokens);
    result.decode_stream.seconds = result.decode_s;
    return result;
  }

 private:
  // The model's own greedy continuation: what random tokens follow cannot be guessed.
  Result<BenchRun> run_with_drafts(Sequence& sequence) {
    BenchRun result;
    SchedulerOptions options;
    options.prefill_chunk = options_.prefill_chunk;
    options.observer = options_.observer;
    options.drafts = options_.drafts;
    if (options_.draft_auto) options.governor = &governor_;
    Scheduler scheduler(engine_, options);
    DraftListener listener(engine_, options_, &result);
    MOTLEY_RETURN_IF_ERROR(
        scheduler.submit(sequence, {.max_new_tokens = options_.generate_tokens + 1}, listener));
    scheduler.run_until_idle();
    MOTLEY_RETURN_IF_ERROR(listener.status());
    if (options_.draft_auto) result.draft_choice = governor_.summary(options_.drafts);
    return result;
  }

  // As the scheduler would: in chunks, or layer by layer when experts are streamed.
  Status prefill_all(Sequence& sequence) {
    const int64_t chunk = options_.prefill_chunk;
    while (!sequence.pending().empty()) {
      const auto tokens = std::ssize(sequence.pending());
      const int64_t swept = runner_.rows_to_sweep(tokens, chunk);
      if (swept > 0) {
        MOTLEY_RETURN_IF_ERROR(sweep(sequence, swept));
      } else {
        MOTLEY_RETURN_IF_ERROR(step(sequence, RowRole::kPrefill, std::min(tokens, chunk)));
      }
    }
    return Status::ok();
  }

  Status sweep(Sequence& sequence, int64_t rows) {
    return runner_.run_sweep({.state = sequence.state(),
                              .tokens = sequence.pending().first(static_cast<size_t>(rows)),
                              .first = sequence.computed_tokens(),
                              .chunk = options_.prefill_chunk,
                              .wants_logits = rows == std::ssize(sequence.pending()),
                              .follow = [](const ConstTensorView&) { return Status::ok(); },
                              .keep_going = [](int, int) { return true; }},
                             observer(), &logits_);
  }

  // Every quarter of a second, and at the end, the memory's rate is taken.
  Status decode(Sequence& sequence, std::span<const int32_t> tokens, BenchRun* run) {
    const Clock& clock = engine_.context().clock;
    ThreadPool& threads = engine_.context().threads;
    double read_s = 0;
    int64_t read_bytes = 0;
    double stretch_s = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t start_ns = clock.now_ns();
      sequence.append(tokens[i]);
      MOTLEY_RETURN_IF_ERROR(step(sequence, RowRole::kDecode, 1));
      const double token_s = seconds_since(clock, start_ns);
      run->decode_s += token_s;
      stretch_s += token_s;
      add_logits(run);
      if (memory_ == nullptr || (stretch_s < kStretchSeconds && i + 1 < tokens.size())) continue;
      read_s += memory_->pass_seconds(threads, clock);
      read_bytes += memory_->bytes();
      stretch_s = 0;
    }
    if (read_s > 0) run->read_bytes_per_s = static_cast<double>(read_bytes) / read_s;
    return Status::ok();
  }

  void add_logits(BenchRun* run) const {
    const std::array<uint64_t, 2> hashes = {run->logits_hash,
                                            hash_bytes(std::as_bytes(std::span(logits_)))};
    run->logits_hash = hash_bytes(std::as_bytes(std::span(hashes)));
  }

  StepObserver& observer() { return options_.observer != nullptr ? *options_.observer : nobody_; }

  Status step(Sequence& sequence, RowRole role, int64_t rows) {
    batch_.clear();
    const auto pending = sequence.pending();
    batch_.add(role, sequence.state(), pending.first(static_cast<size_t>(rows)),
               {sequence.computed_tokens()});
    // As in a generation: logits for a decoded token and for the last one of the prompt.
    const bool wants_logits = rows == std::ssize(pending);
    const auto last = static_cast<int32_t>(batch_.rows() - 1);
    MOTLEY_RETURN_IF_ERROR(
        runner_.run(batch_, wants_logits ? std::span(&last, 1) : std::span<const int32_t>(),
                    observer(), &logits_));
    if (wants_logits) chosen_ = argmax(logits_);
    return Status::ok();
  }

  Engine& engine_;
  const BenchOptions& options_;
  const ReadTest* memory_;
  StepRunner runner_;
  StepObserver nobody_;
  DraftGovernor governor_;
  Batch batch_;
  std::vector<float> logits_;
  int32_t chosen_ = 0;
};

// The unit that the backend's matrix kernels use for these weights (ops/cpu/linear_kernels.h).
std::string numbers_of(const LoadedModel& model, const OpTable& ops) {
  for (const TensorSpec& tensor : model.spec.tensors) {
    if (tensor.role != TensorRole::kExperts) continue;
    const TensorHandle handle{static_cast<int32_t>(&tensor - model.spec.tensors.data())};
    const WeightMatrix weights = model.weights.expert(handle, 0);
    if (gguf_type(weights.format)) return "int8";  // as affine groups of 32
    if (weights.format != WeightFormat::kMlxAffine) continue;
    const bool has_bf16_tiles = ops.name == "cpu/amx" && ops.profile == NumericProfile::kFast &&
                                weights.affine.bits == 4 && weights.affine.group_size >= 64;
    return has_bf16_tiles ? "bfloat16" : "int8";
  }
  return ops.profile == NumericProfile::kFast ? "bfloat16" : "float32";
}

Result<int64_t> size_of_read_test(int64_t wanted_bytes) {
  if (wanted_bytes != kAutoReadBytes) return wanted_bytes;
  MOTLEY_ASSIGN_OR_RETURN(const SystemMemory memory, read_system_memory());
  return read_test_bytes(static_cast<int64_t>(memory.usable_now_bytes()));
}

}  // namespace

Result<std::vector<MachineRates>> measure_machine(const Clock& clock,
                                                  const MachineRatesOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t bytes, size_of_read_test(options.read_bytes));
  std::vector<int> counts;
  for (int threads = 1; threads < options.threads; threads *= 2) counts.push_back(threads);
  counts.push_back(options.threads);
  std::vector<MachineRates> rates;
  for (const int count : counts) {
    if (options.progress) options.progress(fmt::format("machine, {} threads", count));
    ThreadPool threads({.threads = count});
    MOTLEY_RETURN_IF_ERROR(threads.status());
    MachineRates& entry = rates.emplace_back();
    entry.threads = count;
    MOTLEY_ASSIGN_OR_RETURN(entry.read_bytes_per_s,
                            measure_read_bytes_per_s(bytes, threads, clock));
    entry.peaks = measure_peak_rates(options.isa, threads, clock);
  }
  return rates;
}

Result<ModelBench> bench_model(Engine& engine, const BenchOptions& options) {
  const int64_t tokens = options.prompt_tokens + options.generate_tokens;
  // With drafts the first token comes from the prompt and is not counted.
  if (tokens + (options.drafts > 0 ? 1 : 0) > engine.context_length()) {
    return invalid_argument(
        fmt::format("{} prompt and {} generated tokens exceed the context of {}",
                    options.prompt_tokens, options.generate_tokens, engine.context_length()));
  }
  ModelBench bench;
  bench.model = engine.options().model.string();
  bench.numerics = engine.numerics_name();
  bench.threads = engine.context().threads.size();
  bench.options = options;
  bench.cost = token_cost(engine.spec(), engine.model().weights, engine.layout());
  bench.matrix_numbers = numbers_of(engine.model(), engine.ops());
  MOTLEY_ASSIGN_OR_RETURN(const int64_t read_bytes, size_of_read_test(options.read_bytes));
  std::optional<ReadTest> memory;
  if (read_bytes > 0) {
    MOTLEY_ASSIGN_OR_RETURN(memory, ReadTest::create(read_bytes, engine.context().threads));
  }
  BenchRunner runner(engine, options, memory.has_value() ? &*memory : nullptr);
  for (int64_t i = 0; i < options.repeat; ++i) {
    if (options.progress) options.progress(fmt::format("run {} of {}", i + 1, options.repeat));
    MOTLEY_ASSIGN_OR_RETURN(const BenchRun run,
                            runner.run(options.seed + static_cast<uint64_t>(i)));
    bench.runs.push_back(run);
  }
  if (engine.streamed_experts() != nullptr && bench.fastest_decode() != nullptr) {
    // The first run also touches the memory of every slot for the first time.
    const StreamStretch& prefill = bench.fastest_prefill()->prefill_stream;
    const StreamStretch& decode = bench.fastest_decode()->decode_stream;
    bench.stream_lines =
        "prefill " + stream_text(engine, prefill) + "decode  " + stream_text(engine, decode);
    bench.stream_object = fmt::format("{{\"prefill\": {}, \"decode\": {}}}",
                                      stream_json(engine, prefill), stream_json(engine, decode));
  }
  return bench;
}

}  // namespace motley
