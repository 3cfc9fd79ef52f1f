#include "engine/plan/compute_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/sampler.h"
#include "engine/token_cost.h"
#include "experts/expert_store.h"
#include "io/made_up_weights.h"
#include "model/decoder.h"
#include "ops/cpu/peak_rates.h"
#include "state/page_pool.h"

namespace motley {
namespace {

constexpr int kMostRepeats = 25;
constexpr int kLeastRepeats = 5;
constexpr int64_t kEmbeddingRows = 64;
// An expert is met again only after this many others' bytes.
constexpr int64_t kLeastExperts = 4;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A few experts that stand for all of a layer, and the time that their products take.
class PoolStore final : public ExpertStore {
 public:
  PoolStore(const Clock& clock, std::vector<std::vector<ExpertWeights>> pools)
      : clock_(clock), pools_(std::move(pools)) {}

  Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                       Meanwhile) override {
    const std::vector<ExpertWeights>& pool = pools_[static_cast<size_t>(layer)];
    resolved_.clear();
    for (const int32_t expert : wanted) {
      resolved_.push_back({expert, &pool[static_cast<size_t>(expert) % pool.size()]});
    }
    const int64_t start_ns = clock_.now_ns();
    if (!one_by_one) {
      compute(resolved_);
    } else {
      for (const ResolvedExpert& expert : resolved_) compute({&expert, 1});
    }
    seconds += seconds_since(clock_, start_ns);
    return Status::ok();
  }

  bool one_by_one = false;
  double seconds = 0;  // since it was set to 0

 private:
  const Clock& clock_;
  std::vector<std::vector<ExpertWeights>> pools_;
  std::vector<ResolvedExpert> resolved_;
};

// Splits a step's time.
struct StepTime {
  double dense_s = 0;
  double experts_s = 0;

  double total_s() const { return dense_s + experts_s; }
};

class ComputeProbe {
 public:
  ComputeProbe(Context& context, const ModelSpec& whole, const std::vector<LayerKind>& kinds,
               const OpTable& ops, const ComputeProbeOptions& options)
      : context_(context),
        kinds_(kinds),
        ops_(ops),
        options_(options),
        spec_(one_of_each(whole, kinds)),
        layout_(make_state_layout(spec_, options.state)),
        topology_(Topology::single(ops.name)),
        stream_(context),
        step_{ops_, stream_, topology_, collective_} {}

  Result<ModelRates> run(const QuantizationConfig& quantization, Checkpoint checkpoint) {
    MOTLEY_RETURN_IF_ERROR(set_up(quantization, std::move(checkpoint)));
    ModelRates rates{.threads = context_.threads.size(),
                     .near_tokens = options_.near_tokens,
                     .chunk_tokens = options_.chunk_tokens};
    for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) {
      if (options_.progress) options_.progress(kinds_[static_cast<size_t>(kind)].name);
      MOTLEY_ASSIGN_OR_RETURN(const KindRates measured, measure(kind));
      rates.kinds.push_back(measured);
    }
    MOTLEY_ASSIGN_OR_RETURN(rates.head_s, measure_head());
    rates.head_bytes = head_bytes();
    rates.read_all_bytes_per_s = static_cast<double>(read_bytes_) / read_s_;
    MOTLEY_ASSIGN_OR_RETURN(rates.read_one_bytes_per_s, measure_one_thread());
    return rates;
  }

 private:
  static ModelSpec one_of_each(const ModelSpec& whole, const std::vector<LayerKind>& kinds) {
    ModelSpec spec = whole;
    spec.layers.clear();
    spec.drafts.clear();
    for (const LayerKind& kind : kinds) {
      spec.layers.push_back(whole.layers[static_cast<size_t>(kind.layers.front())]);
    }
    return spec;
  }

  Status set_up(const QuantizationConfig& quantization, Checkpoint checkpoint) {
    MOTLEY_ASSIGN_OR_RETURN(
        LoadedWeights weights,
        make_up_weights(context_, spec_, quantization, std::move(checkpoint), tensors()));
    weights_.emplace(std::move(weights));
    std::vector<std::vector<ExpertWeights>> pools;
    pools.reserve(kinds_.size());
    for (size_t i = 0; i < kinds_.size(); ++i) pools.push_back(pool_of(i));
    store_.emplace(context_.clock, std::move(pools));
    decoder_.emplace(spec_, *weights_, *store_, options_.delta);
    pool_.emplace(context_, layout_.bytes_for(options_.far_tokens + options_.chunk_tokens) +
                                layout_.bytes_for(1));
    MOTLEY_ASSIGN_OR_RETURN(SequenceState state, SequenceState::create(layout_, *pool_));
    state_.emplace(std::move(state));
    MOTLEY_RETURN_IF_ERROR(state_->reserve(options_.far_tokens + options_.chunk_tokens));
    touch_caches();
    MOTLEY_ASSIGN_OR_RETURN(
        memory_, ReadTest::create(read_test_bytes(options_.most_bytes), context_.threads));
    return Status::ok();
  }

  int64_t experts_in_pool(const LayerKind& kind) const {
    const int64_t room =
        options_.most_bytes / 4 / static_cast<int64_t>(kinds_.size()) / kind.one_expert_bytes;
    return std::min<int64_t>(kind.experts, std::max(room, kLeastExperts));
  }

  std::vector<MadeUpTensor> tensors() const {
    std::vector<MadeUpTensor> list;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      visit_layer_tensors(spec_.layers[i], [&](TensorHandle handle, int) {
        const bool is_stack = spec_.tensor(handle).role == TensorRole::kExperts;
        list.push_back({handle, 0, is_stack ? experts_in_pool(kinds_[i]) : 0});
      });
    }
    list.push_back({spec_.final_norm.weight, 0, 0});
    list.push_back({spec_.head, head_rows(), 0});
    if (!(spec_.embedding == spec_.head)) list.push_back({spec_.embedding, kEmbeddingRows, 0});
    return list;
  }

  int64_t head_rows() const {
    const int64_t most = options_.most_bytes / 8 / (4 * spec_.hidden_size);
    return std::min(spec_.vocab_size, std::max(most, kEmbeddingRows));
  }

  int64_t head_bytes() const {
    const WeightMatrix& part = weights_->matrix(spec_.head);
    return part.bytes() / part.rows * spec_.vocab_size;
  }

  std::vector<ExpertWeights> pool_of(size_t kind) const {
    const auto* moe = std::get_if<MoeSpec>(&spec_.layers[kind].feed_forward);
    std::vector<ExpertWeights> pool;
    if (moe == nullptr) return pool;
    for (int expert = 0; expert < experts_in_pool(kinds_[kind]); ++expert) {
      pool.push_back({.gate = weights_->expert(moe->gate, expert),
                      .up = weights_->expert(moe->up, expert),
                      .down = weights_->expert(moe->down, expert)});
    }
    return pool;
  }

  // Pages that were never written would all be the same page of zeros.
  void touch_caches() {
    for (const StateEntry& entry : layout_.entries) {
      if (entry.bytes_per_token == 0) continue;
      const RowCacheLayout rows{
          .rows_per_page = StateLayout::kTokensPerPage,
          .width = static_cast<int>(entry.bytes_per_token / dtype_bytes(entry.dtype)),
          .dtype = entry.dtype};
      const RowCacheView view =
          state_->rows(entry.layer, entry.kind, rows, options_.far_tokens + options_.chunk_tokens);
      constexpr int kSmallNumber = 0x3C;  // 0x3C3C is 0.0115 in bfloat16
      for (std::byte* page : view.pages) {
        std::memset(page, kSmallNumber, static_cast<size_t>(rows.page_bytes()));
      }
    }
  }

  void push_out_of_caches() {
    if (options_.fits_caches && read_bytes_ > 0) return;
    read_s_ += memory_->pass_seconds(context_.threads, context_.clock);
    read_bytes_ += memory_->bytes();
  }

  // What an indexer of an earlier layer might have chosen: keys at equal distances.
  KeySelection made_up_selection(int64_t rows, int64_t first) const {
    const int64_t width = decoder_->selection_width();
    if (width == 0) return {};
    const KeySelection selection = step_.scratch_selection(rows, width);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t visible = first + r + 1;
      *selection.counts.row<int32_t>(r) =
          visible <= width ? kEveryKey : static_cast<int32_t>(width);
      for (int64_t i = 0; i < width; ++i) {
        selection.positions.row<int32_t>(r)[i] = static_cast<int32_t>(i * visible / width);
      }
    }
    return selection;
  }

  // One step of `rows` tokens through the layer of a kind.
  Result<StepTime> step(int kind, RowRole role, int64_t rows, int64_t first, bool one_by_one) {
    const Arena::Scope scope(stream_.scratch());
    const TensorView hidden =
        step_.scratch(residual_shape(spec_.residual, rows, spec_.hidden_size));
    auto* values = hidden.as<float>();
    for (int64_t i = 0; i < hidden.shape.elements(); ++i) {
      values[i] = static_cast<float>(2 * uniform_at(seed_, static_cast<uint64_t>(i)) - 1);
    }
    ++seed_;
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    batch_.clear();
    batch_.add(role, *state_, tokens, {first});
    StepContext step = step_;
    step.selection = made_up_selection(rows, first);
    push_out_of_caches();
    store_->one_by_one = one_by_one;
    store_->seconds = 0;
    const int64_t start_ns = context_.clock.now_ns();
    MOTLEY_RETURN_IF_ERROR(decoder_->run_layer(kind, step, batch_, hidden, observer_));
    stream_.synchronize();
    const double whole_s = seconds_since(context_.clock, start_ns);
    return StepTime{.dense_s = whole_s - store_->seconds, .experts_s = store_->seconds};
  }

  // Medians of as many steps as the time allows, after one that is not counted.
  Result<StepTime> time_decode(int kind, int64_t first, bool one_by_one) {
    MOTLEY_RETURN_IF_ERROR(step(kind, RowRole::kDecode, 1, first, one_by_one).status());
    std::vector<double> dense;
    std::vector<double> experts;
    double spent_s = 0;
    while (std::ssize(dense) < kLeastRepeats ||
           (std::ssize(dense) < kMostRepeats && spent_s < options_.seconds_per_timing)) {
      MOTLEY_ASSIGN_OR_RETURN(const StepTime time,
                              step(kind, RowRole::kDecode, 1, first, one_by_one));
      dense.push_back(time.dense_s);
      experts.push_back(time.experts_s);
      spent_s += time.total_s();
    }
    return StepTime{.dense_s = median(dense), .experts_s = median(experts)};
  }

  // The fastest of a few chunks: the first ones also make room for what a chunk needs.
  Result<StepTime> time_prefill(int kind, int64_t first) {
    constexpr int kMostChunks = 4;
    StepTime best;
    double spent_s = 0;
    for (int i = 0; i < kMostChunks && spent_s < 4 * options_.seconds_per_timing; ++i) {
      MOTLEY_ASSIGN_OR_RETURN(const StepTime time,
                              step(kind, RowRole::kPrefill, options_.chunk_tokens, first, false));
      if (i == 0 || time.total_s() < best.total_s()) best = time;
      spent_s += time.total_s();
    }
    return best;
  }

  Result<KindRates> measure(int kind) {
    const LayerKind& about = kinds_[static_cast<size_t>(kind)];
    KindRates rates;
    MOTLEY_ASSIGN_OR_RETURN(const StepTime near, time_decode(kind, options_.near_tokens, false));
    rates.decode_s = near.dense_s;
    rates.experts_s = near.experts_s;
    if (about.experts > 0) {
      MOTLEY_ASSIGN_OR_RETURN(const StepTime alone, time_decode(kind, options_.near_tokens, true));
      rates.expert_alone_s = alone.experts_s / about.experts_per_token;
    }
    MOTLEY_ASSIGN_OR_RETURN(const StepTime chunk, time_prefill(kind, 0));
    rates.prefill_s = chunk.dense_s;
    rates.prefill_experts_s = chunk.experts_s;
    if (about.state_bytes_per_token == 0 || options_.far_tokens <= options_.near_tokens) {
      return rates;
    }
    MOTLEY_ASSIGN_OR_RETURN(const StepTime far, time_decode(kind, options_.far_tokens, false));
    MOTLEY_ASSIGN_OR_RETURN(const StepTime late, time_prefill(kind, options_.far_tokens));
    const auto further = static_cast<double>(options_.far_tokens - options_.near_tokens);
    rates.decode_per_context_s = std::max(far.dense_s - near.dense_s, 0.0) / further;
    rates.prefill_per_position_s =
        std::max(late.dense_s - chunk.dense_s, 0.0) / static_cast<double>(options_.far_tokens);
    return rates;
  }

  Result<double> measure_head() {
    const int64_t rows = decoder_->vocab_size();
    const double parts = static_cast<double>(spec_.vocab_size) / static_cast<double>(rows);
    std::vector<double> seconds;
    for (int i = 0; i <= kLeastRepeats; ++i) {
      const Arena::Scope scope(stream_.scratch());
      const TensorView hidden = step_.scratch(residual_shape(spec_.residual, 1, spec_.hidden_size));
      const TensorView logits = step_.scratch({1, rows});
      push_out_of_caches();
      const int64_t start_ns = context_.clock.now_ns();
      const int32_t token = 0;
      decoder_->embed(step_, {&token, 1}, hidden);
      const PostNormHidden normed =
          decoder_->final_norm(step_, PreNormHidden{hidden}, step_.scratch({1, spec_.hidden_size}));
      decoder_->logits(step_, normed, {.decode = 1, .prefill = 0}, logits);
      stream_.synchronize();
      if (i > 0) seconds.push_back(parts * seconds_since(context_.clock, start_ns));
    }
    return median(seconds);
  }

  Result<double> measure_one_thread() const {
    ThreadPool one({.threads = 1, .pin = false});
    MOTLEY_RETURN_IF_ERROR(one.status());
    return static_cast<double>(memory_->bytes()) / memory_->pass_seconds(one, context_.clock);
  }

  Context& context_;
  const std::vector<LayerKind>& kinds_;
  const OpTable& ops_;
  const ComputeProbeOptions& options_;
  const ModelSpec spec_;
  const StateLayout layout_;
  const Topology topology_;
  SingleCollective collective_;
  HostStream stream_;
  StepContext step_;
  StepObserver observer_;
  std::optional<LoadedWeights> weights_;
  std::optional<PoolStore> store_;
  std::optional<Decoder> decoder_;
  std::optional<PagePool> pool_;
  std::optional<SequenceState> state_;
  std::optional<ReadTest> memory_;
  Batch batch_;
  uint64_t seed_ = 1;
  double read_s_ = 0;
  int64_t read_bytes_ = 0;
};

}  // namespace

Result<ModelRates> measure_model_rates(Context& context, OpenedModel model,
                                       const std::vector<LayerKind>& kinds, const OpTable& ops,
                                       const ComputeProbeOptions& options) {
  MOTLEY_CHECK(ops.activation_dtype == DType::kF32, "the reference is not timed");
  MOTLEY_CHECK(!kinds.empty() && options.chunk_tokens > 0 && options.near_tokens >= 0,
               "nothing to time");
  ComputeProbe probe(context, model.spec, kinds, ops, options);
  return probe.run(model.quantization, std::move(model.checkpoint));
}

}  // namespace motley
