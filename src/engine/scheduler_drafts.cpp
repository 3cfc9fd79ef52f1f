// The part of the step loop that guesses tokens.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/scheduler.h"

namespace motley {
namespace {

// Rows that are kept for the draft layer while nobody asks it for guesses.
constexpr int64_t kMostUnfollowed = 64;

}  // namespace

// Tokens beyond the request's or the context's end are not worth guessing.
int Scheduler::drafts_for(const Request& request) const {
  if (request.ending || !request.prompt_done) return 0;
  int64_t drafts =
      options_.governor != nullptr ? options_.governor->choose(options_.drafts) : options_.drafts;
  if (request.params.max_new_tokens > 0) {
    drafts = std::min(drafts, request.params.max_new_tokens - request.stats.generated_tokens - 1);
  }
  const auto tokens = std::ssize(request.sequence->tokens());
  drafts = std::min(drafts, engine_.context_length() - tokens - 1);
  return static_cast<int>(std::max<int64_t>(drafts, 0));
}

// What guessing and verifying cost, if every request did as many and nothing else was in between.
void Scheduler::note_cost() {
  const int64_t start_ns = std::exchange(cycle_start_ns_, 0);
  for (const Request* request : in_step_) {
    options_.governor->note_stats(request->step_drafts);
  }
  const Request& first = *in_step_.front();
  const bool is_typical =
      std::all_of(in_step_.begin(), in_step_.end(), [&](const Request* request) {
        return request->role == RowRole::kDecode && request->step_rows == first.step_rows;
      });
  if (start_ns == 0 || !is_typical) return;
  DraftCost cost{.seconds = seconds_since(engine_.context().clock, start_ns)};
  if (const StreamedExpertStore* store = engine_.streamed_experts()) {
    const StreamStats stats = store->stats() - cycle_start_;
    cost.wait_s = stats.wait_s;
    cost.read_bytes = static_cast<double>(stats.read_bytes);
  }
  options_.governor->note_cost(static_cast<int>(first.step_rows) - 1, cost);
}

void Scheduler::draft() {
  const int64_t start_ns = engine_.context().clock.now_ns();
  const bool only_decode =
      std::all_of(in_step_.begin(), in_step_.end(),
                  [](const Request* request) { return request->role == RowRole::kDecode; });
  cycle_start_ns_ = only_decode ? start_ns : 0;
  if (const StreamedExpertStore* store = engine_.streamed_experts()) cycle_start_ = store->stats();
  Status status = draft_role(RowRole::kPrefill);
  if (status.is_ok()) status = draft_role(RowRole::kDecode);
  const double draft_s = seconds_since(engine_.context().clock, start_ns);
  for (Request* request : in_step_) {
    (request->role == RowRole::kDecode ? request->stats.decode_s : request->stats.prefill_s) +=
        draft_s;
    if (!status.is_ok() && !request->ending) fail(*request, status);
  }
}

// With all rows that the draft layer has not taken yet.
DraftJob Scheduler::draft_job(Request& request) {
  DraftJob job{.sequence = request.sequence, .sampler = &request.sampler, .out = &request.drafts};
  if (request.first_row >= 0) {
    const ConstTensorView rows = runner_.hidden().slice_rows(request.first_row, request.final_rows);
    const int64_t bytes = rows.shape.elements() * dtype_bytes(rows.dtype);
    request.unfollowed.insert(request.unfollowed.end(), rows.data, rows.data + bytes);
  }
  const int64_t row_bytes =
      engine_.decoder().hidden_size() * dtype_bytes(engine_.ops().activation_dtype);
  const int64_t waiting = std::ssize(request.unfollowed) / row_bytes;
  const void* first = request.unfollowed.data();
  if (waiting > 0) {
    job.hidden = make_view(first, engine_.ops().activation_dtype,
                           {waiting, engine_.decoder().hidden_size()});
  }
  return job;
}

Status Scheduler::draft_role(RowRole role) {
  std::vector<DraftJob> jobs;
  std::vector<Request*> followed;
  for (Request* request : in_step_) {
    if (request->role != role || !request->sequence->is_valid()) continue;
    DraftJob job = draft_job(*request);
    job.drafts = drafts_for(*request);
    const bool can_wait = role == RowRole::kDecode && job.drafts == 0 && !request->ending;
    if (can_wait && job.hidden.rows() < kMostUnfollowed) continue;
    // A step that also takes what earlier ones left costs more than one of its kind.
    if (job.hidden.rows() > request->final_rows) cycle_start_ns_ = 0;
    jobs.push_back(job);
    followed.push_back(request);
  }
  const Status status = drafter_.run(jobs, role, options_.prefill_chunk, observer());
  for (Request* request : followed) request->unfollowed.clear();
  return status;
}

// For a request that ends between two steps.
void Scheduler::follow_rest(Request& request) {
  if (request.unfollowed.empty() || !request.sequence->is_valid()) return;
  request.first_row = -1;
  const DraftJob job = draft_job(request);
  const Status status =
      drafter_.run({&job, 1}, RowRole::kDecode, options_.prefill_chunk, observer());
  if (!status.is_ok()) request.sequence->invalidate();
}

}  // namespace motley
