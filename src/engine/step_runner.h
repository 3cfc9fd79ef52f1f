// Runs one batch through the decoder and brings the wanted logits to the host.
// Ownership: owns the stream with its scratch; the engine outlives it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "model/observer.h"
#include "tensor/stream.h"

namespace motley {

class StepRunner {
 public:
  explicit StepRunner(Engine& engine);

  // `logit_rows`: ascending rows whose next-token logits are wanted. logits is resized to
  // [logit_rows, vocab]. On an error the sequences of the batch hold undefined state.
  Status run(Batch& batch, std::span<const int32_t> logit_rows, StepObserver& observer,
             std::vector<float>* logits);

  // A prompt layer by layer: all chunks through one layer before the next, so that a streamed
  // layer's experts are read once, while the layer before it computes.
  struct Sweep {
    SequenceState& state;
    std::span<const int32_t> tokens;  // prefill rows that continue the sequence at `first`
    int64_t first = 0;
    int64_t chunk = 0;          // rows at a time, kept exactly
    bool wants_logits = false;  // of the last token
    // Called with the post-norm hidden states of all rows before the sweep ends, when hidden
    // states are kept: the place of a draft layer.
    FunctionRef<Status(const ConstTensorView& hidden)> follow;
    // Asked before each layer; false: stop with kCancelled.
    FunctionRef<bool(int done_layers, int layers)> keep_going;
  };
  // How many of a prompt's `tokens` are better swept now than run in chunks: none when experts are
  // in memory, at most MemoryNeeds::kSweepTokens.
  int64_t rows_to_sweep(int64_t tokens, int64_t chunk) const;
  // Bits, errors and `logits` as of run() over the chunks one after the other.
  Status run_sweep(const Sweep& sweep, StepObserver& observer, std::vector<float>* logits);

  // Post-norm hidden states of all rows of the last run, [rows, hidden] in activation dtype; only
  // kept when asked for before the run.
  void keep_hidden(bool keep) { keep_hidden_ = keep; }
  ConstTensorView hidden() const;

  // One draft step over `next_tokens` (see Decoder::run_draft). hidden [rows, hidden] is replaced
  // by the draft's own post-norm states; logits as in run(), for all rows.
  Status run_draft(int index, Batch& next_tokens, const TensorView& hidden, StepObserver& observer,
                   std::vector<float>* logits);

  // The same with logits of `logit_rows` (ascending) only.
  Status run_draft_rows(int index, Batch& next_tokens, const TensorView& hidden,
                        std::span<const int32_t> logit_rows, StepObserver& observer,
                        std::vector<float>* logits);

  // Decoder::commit in this runner's stream.
  void commit(SequenceState& state, int32_t rows, StepObserver& observer) {
    engine_.decoder().commit(step_, state, rows, observer);
  }

  StepContext& step_context() { return step_; }
  Stream& stream() { return stream_; }

 private:
  Status follow_sweep(const Sweep& sweep, const TensorView& hidden);
  Status sweep_layers(const Sweep& sweep, const TensorView& hidden, StepObserver& observer);
  // rows[i] = from[wanted[i]]; how many of them are decode rows, of which `decode` come first.
  RowCounts gather(const TensorView& from, std::span<const int32_t> wanted, int64_t decode,
                   const TensorView& rows) const;
  // `draft`: whose head is used, the trunk's without one.
  void copy_logits(const TensorView& rows, RowCounts counts, std::optional<int> draft,
                   std::vector<float>* logits);

  Engine& engine_;
  HostStream stream_;
  StepContext step_;
  bool keep_hidden_ = false;
  std::vector<std::byte> hidden_;
  int64_t hidden_rows_ = 0;
};

}  // namespace motley
