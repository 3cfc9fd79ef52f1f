#include "experts/pack/batch_reader.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/thread_pool.h"

namespace motley {
namespace {

constexpr int64_t kBatchBytes = int64_t{48} << 20;  // of one of the two sets of buffers
constexpr int64_t kMostJobs = 64;
constexpr int kDepth = 64;

}  // namespace

Result<BatchReader> BatchReader::create(Context& context, std::vector<DirectFile> files,
                                        int64_t job_bytes, ReadBackendKind io) {
  const int64_t batch = std::clamp<int64_t>(kBatchBytes / job_bytes, 1, kMostJobs);
  MOTLEY_ASSIGN_OR_RETURN(AlignedBuffer memory,
                          AlignedBuffer::allocate(static_cast<size_t>(2 * batch * job_bytes)));
  MOTLEY_ASSIGN_OR_RETURN(std::unique_ptr<ReadScheduler> scheduler,
                          ReadScheduler::open(context.clock, context.faults, std::move(files),
                                              {.depth = kDepth, .backend = io, .threads = 16}));
  return BatchReader(context, job_bytes, batch, std::move(memory), std::move(scheduler));
}

Status BatchReader::run(int64_t count, const Work& work) {
  arrived_.clear();
  start(0, std::min(batch_, count), work);
  Status status;
  for (int64_t begin = 0; begin < count && status.is_ok(); begin += batch_) {
    const int64_t end = std::min(begin + batch_, count);
    wait_for(begin, end);
    start(end, std::min(end + batch_, count), work);
    status = use_batch(begin, end, work);
    if (status.is_ok()) status = work.after_batch(end);
  }
  while (!scheduler_->is_idle()) scheduler_->wait();  // the buffers are in use until then
  return status;
}

void BatchReader::start(int64_t begin, int64_t end, const Work& work) {
  std::vector<ReadRange> ranges;
  for (int64_t job = begin; job < end; ++job) {
    ranges.clear();
    for (const ExpertRead& read : work.reads(job)) {
      // The last block may reach beyond the file.
      const DirectFile& file = scheduler_->files()[static_cast<size_t>(read.file)];
      const FileRange range =
          file.aligned_range(read.offset, std::min(read.bytes, file.size() - read.offset));
      ranges.push_back({.file = read.file,
                        .offset = range.offset,
                        .into = {data_of(job) + read.at, static_cast<size_t>(range.bytes)}});
    }
    scheduler_->submit(static_cast<uint64_t>(job), ReadPriority::kSweep, ranges);
  }
}

// Leaves what has arrived of the batch at the front of arrived_, in order of jobs.
void BatchReader::wait_for(int64_t begin, int64_t end) {
  while (std::ssize(arrived_) < end - begin) {
    std::vector<ReadCompletion> more = scheduler_->wait();
    std::move(more.begin(), more.end(), std::back_inserter(arrived_));
  }
  std::sort(arrived_.begin(), arrived_.end(),
            [](const ReadCompletion& a, const ReadCompletion& b) { return a.tag < b.tag; });
}

Status BatchReader::use_batch(int64_t begin, int64_t end, const Work& work) {
  const std::vector<ReadCompletion> batch = std::exchange(arrived_, {});
  std::mutex mutex;
  Status first_error;
  context_.threads.parallel_for(end - begin, 1, [&](int worker, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const Status status =
          work.use(worker, begin + i, data_of(begin + i), batch[static_cast<size_t>(i)].status);
      if (status.is_ok()) continue;
      const std::lock_guard lock(mutex);
      if (first_error.is_ok()) first_error = status;
    }
  });
  return first_error;
}

}  // namespace motley
