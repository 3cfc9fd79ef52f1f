// Reads many jobs in order with bounded memory: while one batch is used by all threads, the next
// one is read.
//
// Ownership: files and two sets of buffers. Thread rule: run() on the thread that owns the context;
// `use` on any of its threads, each job once. Errors: a job whose read failed twice is given to
// `use` with its status; the first error that `use` or `after_batch` returns ends the run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "experts/expert_layout.h"
#include "io/stream/read_scheduler.h"

namespace motley {

class BatchReader {
 public:
  // A job needs at most `job_bytes`.
  static Result<BatchReader> create(Context& context, std::vector<DirectFile> files,
                                    int64_t job_bytes, ReadBackendKind io);

  struct Work {
    FunctionRef<std::span<const ExpertRead>(int64_t job)> reads;
    FunctionRef<Status(int worker, int64_t job, const std::byte* data, const Status& arrived)> use;
    FunctionRef<Status(int64_t done_jobs)> after_batch;  // on the caller's thread
  };
  // Jobs 0 to count - 1.
  Status run(int64_t count, const Work& work);

 private:
  BatchReader(Context& context, int64_t job_bytes, int64_t batch, AlignedBuffer memory,
              std::unique_ptr<ReadScheduler> scheduler)
      : context_(context),
        job_bytes_(job_bytes),
        batch_(batch),
        memory_(std::move(memory)),
        scheduler_(std::move(scheduler)) {}
  std::byte* data_of(int64_t job) { return memory_.data() + job % (2 * batch_) * job_bytes_; }
  void start(int64_t begin, int64_t end, const Work& work);
  void wait_for(int64_t begin, int64_t end);
  Status use_batch(int64_t begin, int64_t end, const Work& work);

  Context& context_;
  int64_t job_bytes_;
  int64_t batch_;
  AlignedBuffer memory_;
  std::unique_ptr<ReadScheduler> scheduler_;
  std::vector<ReadCompletion> arrived_;  // of the batch that is waited for and the next one
};

}  // namespace motley
