#include "engine/step_runner.h"

#include <algorithm>
#include <cstring>

namespace motley {

StepRunner::StepRunner(Engine& engine)
    : engine_(engine),
      stream_(engine.context()),
      step_{engine.ops(), stream_, engine.topology(), engine.collective()} {}

Status StepRunner::run(Batch& batch, std::span<const int32_t> logit_rows, StepObserver& observer,
                       std::vector<float>* logits) {
  MOTLEY_RETURN_IF_ERROR(batch.reserve());
  const Decoder& decoder = engine_.decoder();
  const Arena::Scope scope(stream_.scratch());
  const int64_t hidden_size = decoder.hidden_size();
  const TensorView hidden = step_.scratch(decoder.residual_shape(batch.rows()));
  decoder.embed(step_, batch.tokens, hidden);
  MOTLEY_RETURN_IF_ERROR(decoder.run_layers(step_, batch, hidden, observer));

  if (keep_hidden_) {
    hidden_rows_ = batch.rows();
    const Shape shape = {hidden_rows_, hidden_size};
    hidden_.resize(static_cast<size_t>(shape.elements() * dtype_bytes(hidden.dtype)));
    const TensorView kept = make_view(hidden_.data(), hidden.dtype, shape);
    (void)decoder.final_norm(step_, PreNormHidden{hidden}, kept);
  }
  const auto wanted = static_cast<int64_t>(logit_rows.size());
  const TensorView rows = step_.scratch(decoder.residual_shape(wanted));
  const RowCounts counts = gather(hidden, logit_rows, batch.counts.decode, rows);
  const TensorView normed = step_.scratch({wanted, hidden_size});
  (void)decoder.final_norm(step_, PreNormHidden{rows}, normed);
  copy_logits(normed, counts, {}, logits);
  return Status::ok();
}

RowCounts StepRunner::gather(const TensorView& from, std::span<const int32_t> wanted,
                             int64_t decode, const TensorView& rows) const {
  const int64_t row_bytes = from.cols() * dtype_bytes(from.dtype);
  RowCounts counts;
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(rows.data + static_cast<int64_t>(i) * row_bytes, from.data + wanted[i] * row_bytes,
                static_cast<size_t>(row_bytes));
    ++(wanted[i] < decode ? counts.decode : counts.prefill);
  }
  return counts;
}

int64_t StepRunner::rows_to_sweep(int64_t tokens, int64_t chunk) const {
  if (engine_.streamed_experts() == nullptr) return 0;
  if (!choose_sweep(engine_.memory_plan().needs, tokens, chunk).sweep) return 0;
  return std::min(tokens, MemoryNeeds::kSweepTokens);
}

Status StepRunner::run_sweep(const Sweep& sweep, StepObserver& observer,
                             std::vector<float>* logits) {
  const Decoder& decoder = engine_.decoder();
  const Arena::Scope scope(stream_.scratch());
  const auto rows = std::ssize(sweep.tokens);
  const TensorView hidden = step_.scratch(decoder.residual_shape(rows));
  decoder.embed(step_, sweep.tokens, hidden);
  Status swept = sweep_layers(sweep, hidden, observer);
  if (swept.is_ok()) {
    sweep.state.set_length(sweep.first + rows);
    if (keep_hidden_) swept = follow_sweep(sweep, hidden);
  }
  engine_.experts().end_sweep();
  MOTLEY_RETURN_IF_ERROR(swept);
  if (!sweep.wants_logits) return Status::ok();
  const TensorView last = step_.scratch({1, decoder.hidden_size()});
  (void)decoder.final_norm(step_, PreNormHidden{hidden.slice_rows(rows - 1, 1)}, last);
  copy_logits(last, {.decode = 0, .prefill = 1}, {}, logits);
  return Status::ok();
}

Status StepRunner::follow_sweep(const Sweep& sweep, const TensorView& hidden) {
  const Decoder& decoder = engine_.decoder();
  const Arena::Scope scope(stream_.scratch());
  const TensorView normed = step_.scratch({hidden.rows(), decoder.hidden_size()});
  (void)decoder.final_norm(step_, PreNormHidden{hidden}, normed);
  if (!sweep.keep_going(decoder.layers(), decoder.layers())) {
    return cancelled("the prompt was given up");
  }
  engine_.experts().begin_sweep_layer(decoder.layers());
  return sweep.follow(normed);
}

Status StepRunner::sweep_layers(const Sweep& sweep, const TensorView& hidden,
                                StepObserver& observer) {
  const Decoder& decoder = engine_.decoder();
  std::vector<Batch> chunks;
  for (int64_t begin = 0; begin < hidden.rows(); begin += sweep.chunk) {
    const int64_t rows = std::min(sweep.chunk, hidden.rows() - begin);
    chunks.emplace_back().add(
        RowRole::kPrefill, sweep.state,
        sweep.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
        {sweep.first + begin});
    MOTLEY_RETURN_IF_ERROR(chunks.back().reserve());
  }
  const int64_t width = decoder.selection_width();
  KeySelection selection;  // of all rows: a later layer may share the choice of an earlier one
  if (width > 0) selection = step_.scratch_selection(hidden.rows(), width);
  for (int layer = 0; layer < decoder.layers(); ++layer) {
    if (!sweep.keep_going(layer, decoder.layers())) return cancelled("the prompt was given up");
    engine_.experts().begin_sweep_layer(layer);
    int64_t begin = 0;
    for (const Batch& chunk : chunks) {
      StepContext step = step_;
      if (width > 0) step.selection = selection.slice_rows(begin, chunk.rows());
      MOTLEY_RETURN_IF_ERROR(
          decoder.run_layer(layer, step, chunk, hidden.slice_rows(begin, chunk.rows()), observer));
      begin += chunk.rows();
    }
  }
  return Status::ok();
}

ConstTensorView StepRunner::hidden() const {
  return make_view(hidden_.data(), engine_.ops().activation_dtype,
                   {hidden_rows_, engine_.decoder().hidden_size()});
}

Status StepRunner::run_draft(int index, Batch& next_tokens, const TensorView& hidden,
                             StepObserver& observer, std::vector<float>* logits) {
  MOTLEY_RETURN_IF_ERROR(
      run_draft_rows(index, next_tokens, hidden, /*logit_rows=*/{}, observer, logits));
  copy_logits(hidden, next_tokens.counts, index, logits);
  return Status::ok();
}

Status StepRunner::run_draft_rows(int index, Batch& next_tokens, const TensorView& hidden,
                                  std::span<const int32_t> logit_rows, StepObserver& observer,
                                  std::vector<float>* logits) {
  MOTLEY_RETURN_IF_ERROR(next_tokens.reserve());
  MOTLEY_RETURN_IF_ERROR(engine_.decoder().run_draft(
      index, step_, next_tokens, PostNormHidden{hidden}, PostNormHidden{hidden}, observer));
  const Arena::Scope scope(stream_.scratch());
  const TensorView rows = step_.scratch({std::ssize(logit_rows), engine_.decoder().hidden_size()});
  const RowCounts counts = gather(hidden, logit_rows, next_tokens.counts.decode, rows);
  copy_logits(rows, counts, index, logits);
  return Status::ok();
}

void StepRunner::copy_logits(const TensorView& rows, RowCounts counts, std::optional<int> draft,
                             std::vector<float>* logits) {
  const Decoder& decoder = engine_.decoder();
  logits->resize(static_cast<size_t>(rows.rows() * decoder.vocab_size()));
  if (rows.rows() == 0) return;
  const auto compute = [&](const TensorView& to) {
    if (draft.has_value()) {
      decoder.draft_logits(*draft, step_, PostNormHidden{rows}, counts, to);
    } else {
      decoder.logits(step_, PostNormHidden{rows}, counts, to);
    }
    stream_.synchronize();
  };
  const Shape shape = {rows.rows(), decoder.vocab_size()};
  if (rows.dtype == DType::kF32) return compute(view_of(logits->data(), shape));
  const Arena::Scope scope(stream_.scratch());
  const TensorView wide = step_.scratch(shape);
  compute(wide);
  std::transform(wide.as<double>(), wide.as<double>() + shape.elements(), logits->begin(),
                 [](double value) { return static_cast<float>(value); });
}

}  // namespace motley
