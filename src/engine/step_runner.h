// Runs one batch through the decoder and brings the wanted logits to the host.
// Ownership: owns the stream with its scratch; the engine outlives it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

  // Post-norm hidden states of all rows of the last run, [rows, hidden] in activation dtype; only
  // kept when asked for before the run.
  void keep_hidden(bool keep) { keep_hidden_ = keep; }
  ConstTensorView hidden() const;

  // One draft step over `next_tokens` (see Decoder::run_draft). hidden [rows, hidden] is replaced
  // by the draft's own post-norm states; logits as in run(), for all rows.
  Status run_draft(int index, Batch& next_tokens, const TensorView& hidden, StepObserver& observer,
                   std::vector<float>* logits);

  StepContext& step_context() { return step_; }
  Stream& stream() { return stream_; }

 private:
  void copy_logits(const TensorView& rows, RowCounts counts, std::vector<float>* logits);

  Engine& engine_;
  HostStream stream_;
  StepContext step_;
  bool keep_hidden_ = false;
  std::vector<std::byte> hidden_;
  int64_t hidden_rows_ = 0;
};

}  // namespace motley
