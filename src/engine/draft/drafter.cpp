#include "engine/draft/drafter.h"

#include <algorithm>
#include <cstring>

namespace motley {
namespace {

// Families have one draft layer that is used again for every guess.
constexpr int kDraftLayer = 0;

}  // namespace

// A job on its way: which rows are to be run, and the hidden state that the next guess goes on
// from.
struct Drafter::Piece {
  const DraftJob* job = nullptr;
  int64_t first = 0;  // position of job->hidden's first row
  int64_t begin = 0;  // rows to run
  int64_t end = 0;
  int32_t last_row = -1;          // of the batch just run, whose logits give the first guess
  std::vector<std::byte> hidden;  // that row's own post-norm state

  std::span<const int32_t> next_tokens(int64_t from, int64_t rows) const {
    return job->sequence->tokens().subspan(static_cast<size_t>(from) + 1,
                                           static_cast<size_t>(rows));
  }
};

int64_t Drafter::row_bytes() const {
  return engine_.decoder().hidden_size() * dtype_bytes(engine_.ops().activation_dtype);
}

Status Drafter::run(std::span<const DraftJob> jobs, RowRole role, int64_t chunk,
                    StepObserver& observer) {
  std::vector<Piece> pieces;
  for (const DraftJob& job : jobs) {
    if (job.out != nullptr) job.out->clear();
    SequenceState& state = job.sequence->state();
    const int64_t computed = state.length();
    const int64_t first = computed - job.hidden.rows();
    const int64_t known = std::ssize(job.sequence->tokens()) - 1;
    // Rows before `first` need the kept hidden state, and only one is.
    if (state.draft_length() < first - 1 || state.draft_length() > computed) continue;
    pieces.push_back({.job = &job,
                      .first = first,
                      .begin = state.draft_length(),
                      .end = std::min(computed, known)});
  }
  // All but the last chunks one after the other, the last ones together.
  for (Piece& piece : pieces) {
    const int64_t end = piece.end;
    while (end - piece.begin > chunk) {
      piece.end = piece.begin + chunk;
      std::vector<Piece> part = {piece};
      MOTLEY_RETURN_IF_ERROR(follow(part, role, observer));
      piece.begin = piece.end;
    }
    piece.end = end;
  }
  MOTLEY_RETURN_IF_ERROR(follow(pieces, role, observer));
  for (Piece& piece : pieces) {
    const ConstTensorView& hidden = piece.job->hidden;
    SequenceState& state = piece.job->sequence->state();
    state.set_draft_length(piece.end);
    if (hidden.rows() == 0) continue;
    std::memcpy(state.fixed(engine_.decoder().layers(), StateKind::kLastHidden),
                hidden.slice_rows(hidden.rows() - 1, 1).data, static_cast<size_t>(row_bytes()));
  }
  std::erase_if(pieces, [](const Piece& piece) {
    return piece.job->drafts == 0 || piece.last_row < 0 ||
           piece.end < piece.job->sequence->computed_tokens();
  });
  return guess(pieces, observer);
}

// One pass over the pieces' rows. last_row indexes the logits that were asked for.
Status Drafter::follow(std::vector<Piece>& pieces, RowRole role, StepObserver& observer) {
  batch_.clear();
  logit_rows_.clear();
  for (Piece& piece : pieces) {
    const int64_t rows = piece.end - piece.begin;
    if (rows <= 0) continue;
    batch_.add(role, piece.job->sequence->state(), piece.next_tokens(piece.begin, rows),
               {piece.begin});
    if (piece.job->drafts == 0) continue;
    piece.last_row = static_cast<int32_t>(logit_rows_.size());
    logit_rows_.push_back(static_cast<int32_t>(batch_.rows() - 1));
  }
  if (batch_.rows() == 0) return Status::ok();
  const Arena::Scope scope(runner_.stream().scratch());
  const TensorView hidden =
      runner_.step_context().scratch({batch_.rows(), engine_.decoder().hidden_size()});
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    for (int64_t position = piece.begin; position < piece.end; ++position) {
      SequenceState& state = piece.job->sequence->state();
      const std::byte* source =
          position < piece.first ? state.fixed(engine_.decoder().layers(), StateKind::kLastHidden)
                                 : piece.job->hidden.slice_rows(position - piece.first, 1).data;
      std::memcpy(hidden.slice_rows(row++, 1).data, source, static_cast<size_t>(row_bytes()));
    }
  }
  MOTLEY_RETURN_IF_ERROR(
      runner_.run_draft_rows(kDraftLayer, batch_, hidden, logit_rows_, observer, &logits_));
  for (Piece& piece : pieces) {
    if (piece.last_row < 0 || piece.end <= piece.begin) continue;
    const std::byte* last =
        hidden.slice_rows(logit_rows_[static_cast<size_t>(piece.last_row)], 1).data;
    piece.hidden.assign(last, last + row_bytes());
  }
  return Status::ok();
}

void Drafter::choose_next(Piece& piece, int32_t logit_row) {
  const auto vocab = static_cast<size_t>(engine_.decoder().vocab_size());
  const auto logits =
      std::span<const float>(logits_).subspan(static_cast<size_t>(logit_row) * vocab, vocab);
  std::vector<int32_t>& guesses = *piece.job->out;
  const int64_t position =
      std::ssize(piece.job->sequence->tokens()) + static_cast<int64_t>(guesses.size());
  int32_t token = piece.job->sampler->choose(logits, position);
  if (replace_) token = replace_(position, token);
  piece.job->sampler->record(token);
  guesses.push_back(token);
}

Status Drafter::guess(std::vector<Piece>& pieces, StepObserver& observer) {
  for (Piece& piece : pieces) choose_next(piece, piece.last_row);
  const Arena::Scope scope(runner_.stream().scratch());
  Status status = Status::ok();
  for (;;) {
    batch_.clear();
    logit_rows_.clear();
    std::vector<Piece*> active;
    for (Piece& piece : pieces) {
      const auto made = std::ssize(*piece.job->out);
      if (made >= piece.job->drafts) continue;
      // The newest guess, at the position after the hidden state it goes with.
      batch_.add(RowRole::kDecode, piece.job->sequence->state(),
                 std::span(&piece.job->out->back(), 1), {piece.end + made - 1});
      logit_rows_.push_back(static_cast<int32_t>(active.size()));
      active.push_back(&piece);
    }
    if (active.empty()) break;
    const Arena::Scope step_scope(runner_.stream().scratch());
    const TensorView hidden =
        runner_.step_context().scratch({batch_.rows(), engine_.decoder().hidden_size()});
    for (size_t i = 0; i < active.size(); ++i) {
      std::memcpy(hidden.slice_rows(static_cast<int64_t>(i), 1).data, active[i]->hidden.data(),
                  active[i]->hidden.size());
    }
    status = runner_.run_draft_rows(kDraftLayer, batch_, hidden, logit_rows_, observer, &logits_);
    if (!status.is_ok()) break;
    for (size_t i = 0; i < active.size(); ++i) {
      const std::byte* next = hidden.slice_rows(static_cast<int64_t>(i), 1).data;
      active[i]->hidden.assign(next, next + row_bytes());
      choose_next(*active[i], static_cast<int32_t>(i));
    }
  }
  for (const Piece& piece : pieces) {
    const std::vector<int32_t>& guesses = *piece.job->out;
    for (auto token = guesses.rbegin(); token != guesses.rend(); ++token) {
      piece.job->sampler->forget(*token);
    }
  }
  return status;
}

}  // namespace motley
