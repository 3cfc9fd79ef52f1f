// Runs the draft layer: keeps its cache in step with the trunk, and guesses tokens with it.
//
// The draft layer's cache row of position p is made from the trunk's post-norm hidden state there
// and the token at p + 1, so it can follow the trunk by all positions whose next token is known.
// Rows of guesses (made from the draft layer's own hidden states) lie beyond and are overwritten
// when the true ones come. SequenceState::draft_length() counts the true ones; the hidden state of
// the newest computed token is kept in the state (StateKind::kLastHidden), so that any later call,
// of another scheduler too, can go on.
// A draft is chosen by the request's own sampler, with the target's noise.
// Ownership: engine and runner outlive it. Thread rule: that of the runner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/step_runner.h"

namespace motley {

// One sequence after a trunk step.
struct DraftJob {
  Sequence* sequence = nullptr;
  ConstTensorView hidden;      // post-norm, of the newest computed rows; empty: there are no new
  int drafts = 0;              // to be guessed after the pending token
  Sampler* sampler = nullptr;  // of the guesses; left as it was
  std::vector<int32_t>* out = nullptr;  // takes the guesses
};

// The token to take instead of the guess `token` of what comes at `position`.
using ReplaceGuess = std::function<int32_t(int64_t position, int32_t token)>;

class Drafter {
 public:
  Drafter(Engine& engine, StepRunner& runner) : engine_(engine), runner_(runner) {}

  // Takes every job's new rows into the draft layer's cache, `chunk` rows of a sequence at a time,
  // and then guesses. A sequence whose cache has a gap (steps without a drafter) gets no guesses.
  // Errors: those of the runner; the sequences of the jobs then hold undefined state.
  Status run(std::span<const DraftJob> jobs, RowRole role, int64_t chunk, StepObserver& observer);

  // For tests: every guess goes through `replace`.
  void replace_guesses(ReplaceGuess replace) { replace_ = std::move(replace); }

 private:
  struct Piece;
  Status follow(std::vector<Piece>& pieces, RowRole role, StepObserver& observer);
  Status guess(std::vector<Piece>& pieces, StepObserver& observer);
  void choose_next(Piece& piece, int32_t logit_row);
  int64_t row_bytes() const;

  Engine& engine_;
  StepRunner& runner_;
  Batch batch_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;
  ReplaceGuess replace_;
};

}  // namespace motley
