#include "engine/verify/sequence_trace.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "engine/sampler.h"

namespace motley {
namespace {

// Records choices and layers while forcing near ties.
class TraceObserver final : public StepObserver {
 public:
  TraceObserver(const TraceRequest& request, SequenceTrace* trace)
      : request_(request), trace_(trace) {
    if (request.forced != nullptr) {
      forcer_.emplace(*request.forced, request.forced_routes_below, request.forced_keys_below);
    }
  }

  bool wants_activations() const override { return true; }

  ConstTensorView router_scores(int layer, const Batch& batch,
                                const RouterScores& scores) override {
    (void)recorder_.router_scores(layer, batch, scores);
    return forcer_ ? forcer_->router_scores(layer, batch, scores) : ConstTensorView{};
  }

  void routing(int layer, const Batch& batch, const Routing& routing) override {
    recorder_.routing(layer, batch, routing);
  }

  ConstTensorView index_scores(int layer, const Batch& batch,
                               const IndexScoresView& scores) override {
    (void)recorder_.index_scores(layer, batch, scores);
    return forcer_ ? forcer_->index_scores(layer, batch, scores) : ConstTensorView{};
  }

  void key_selection(int layer, const Batch& batch, const KeySelection& selection) override {
    recorder_.key_selection(layer, batch, selection);
  }

  void layer_output(int layer, const Batch& batch, const ConstTensorView& hidden) override {
    const auto index = static_cast<size_t>(layer);
    if (!request_.layers || batch.counts.prefill == 0 || index >= trace_->layers.size()) return;
    for (int64_t row = 0; row < hidden.rows(); ++row) {
      for (int64_t col = 0; col < hidden.cols(); ++col) {
        trace_->layers[index].push_back(hidden.dtype == DType::kF64
                                            ? static_cast<float>(hidden.row<double>(row)[col])
                                            : hidden.row<float>(row)[col]);
      }
    }
  }

  ChoiceTables take_choices() { return std::move(recorder_.tables()); }
  int64_t forced_rows() const { return forcer_ ? forcer_->forced_rows() : 0; }
  int64_t forced_keys() const { return forcer_ ? forcer_->forced_keys() : 0; }

 private:
  const TraceRequest& request_;
  SequenceTrace* trace_;
  ChoiceRecorder recorder_;
  std::optional<ChoiceForcer> forcer_;
};

std::vector<int32_t> all_rows(int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

class Tracer {
 public:
  Tracer(Engine& engine, const TraceRequest& request, Sequence sequence)
      : engine_(engine),
        request_(request),
        sequence_(std::move(sequence)),
        runner_(engine),
        observer_(request, &trace_) {
    trace_.vocab = engine.decoder().vocab_size();
    trace_.hidden = engine.decoder().hidden_size();
    trace_.layers.resize(static_cast<size_t>(engine.decoder().layers()));
    runner_.keep_hidden(request.draft_steps > 0);
  }

  Result<SequenceTrace> run() {
    MOTLEY_RETURN_IF_ERROR(prefill());
    const auto prompt = static_cast<int64_t>(request_.prompt.size());
    trace_.next_token = argmax(trace_.row(trace_.logits, prompt - 1));
    if (request_.draft_steps > 0) MOTLEY_RETURN_IF_ERROR(draft());
    runner_.keep_hidden(false);
    MOTLEY_RETURN_IF_ERROR(decode());
    trace_.choices = observer_.take_choices();
    trace_.forced_rows = observer_.forced_rows();
    trace_.forced_keys = observer_.forced_keys();
    return std::move(trace_);
  }

 private:
  Status prefill() {
    const std::span<const int32_t> prompt = request_.prompt;
    for (size_t begin = 0; begin < prompt.size();) {
      const size_t rows =
          std::min(static_cast<size_t>(request_.prefill_chunk), prompt.size() - begin);
      batch_.clear();
      batch_.add(RowRole::kPrefill, sequence_.state(), prompt.subspan(begin, rows),
                 {static_cast<int64_t>(begin)});
      MOTLEY_RETURN_IF_ERROR(
          runner_.run(batch_, all_rows(batch_.rows()), observer_, &step_logits_));
      trace_.logits.insert(trace_.logits.end(), step_logits_.begin(), step_logits_.end());
      if (request_.draft_steps > 0) keep_hidden();
      begin += rows;
    }
    return Status::ok();
  }

  Status decode() {
    auto position = static_cast<int64_t>(request_.prompt.size());
    const auto last = trace_.row(trace_.logits, position - 1);
    for (const int32_t token : request_.continuation) {
      const std::span<const float> before = position == static_cast<int64_t>(request_.prompt.size())
                                                ? last
                                                : std::span<const float>(step_logits_);
      trace_.decode_logits.insert(trace_.decode_logits.end(), before.begin(), before.end());
      batch_.clear();
      batch_.add(RowRole::kDecode, sequence_.state(), std::span(&token, 1), {position++});
      MOTLEY_RETURN_IF_ERROR(runner_.run(batch_, all_rows(1), observer_, &step_logits_));
    }
    return Status::ok();
  }

  // Draft rows i: (hidden_i, token_{i+1}), the last one with the greedy next token; then the chain.
  Status draft() {
    std::vector<int32_t> next(request_.prompt.begin() + 1, request_.prompt.end());
    next.push_back(trace_.next_token);
    const auto prompt = static_cast<int64_t>(next.size());
    const DType dtype = engine_.ops().activation_dtype;
    const TensorView hidden = make_view(hidden_.data(), dtype, {prompt, trace_.hidden});
    for (int64_t begin = 0; begin < prompt;) {
      const int64_t rows = std::min(request_.prefill_chunk, prompt - begin);
      batch_.clear();
      batch_.add(RowRole::kPrefill, sequence_.state(),
                 std::span(next).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                 {begin});
      MOTLEY_RETURN_IF_ERROR(
          runner_.run_draft(0, batch_, hidden.slice_rows(begin, rows), observer_, &step_logits_));
      trace_.draft_logits.insert(trace_.draft_logits.end(), step_logits_.begin(),
                                 step_logits_.end());
      begin += rows;
    }
    const auto last = trace_.row(trace_.draft_logits, prompt - 1);
    trace_.chain_logits.assign(last.begin(), last.end());
    const TensorView back = hidden.slice_rows(prompt - 1, 1);
    for (int step = 1; step < request_.draft_steps; ++step) {
      const int32_t token = argmax(trace_.row(trace_.chain_logits, step - 1));
      batch_.clear();
      batch_.add(RowRole::kDecode, sequence_.state(), std::span(&token, 1), {prompt + step - 1});
      MOTLEY_RETURN_IF_ERROR(runner_.run_draft(0, batch_, back, observer_, &step_logits_));
      trace_.chain_logits.insert(trace_.chain_logits.end(), step_logits_.begin(),
                                 step_logits_.end());
    }
    return Status::ok();
  }

  void keep_hidden() {
    const ConstTensorView rows = runner_.hidden();
    const auto bytes = static_cast<size_t>(rows.shape.elements() * dtype_bytes(rows.dtype));
    hidden_.insert(hidden_.end(), rows.data, rows.data + bytes);
  }

  Engine& engine_;
  const TraceRequest& request_;
  Sequence sequence_;
  StepRunner runner_;
  SequenceTrace trace_;
  TraceObserver observer_;
  Batch batch_;
  std::vector<float> step_logits_;
  std::vector<std::byte> hidden_;  // post-norm states of the prompt, [prompt, hidden]
};

}  // namespace

Result<SequenceTrace> trace_sequence(Engine& engine, const TraceRequest& request) {
  MOTLEY_CHECK(!request.prompt.empty(), "a trace needs at least one token");
  MOTLEY_ASSIGN_OR_RETURN(Sequence sequence, engine.create_sequence());
  Tracer tracer(engine, request, std::move(sequence));
  return tracer.run();
}

}  // namespace motley
