#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/huge_pages.h"
#include "base/thread_pool.h"

namespace motley {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kChunk = size_t{32} << 20;

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

// Whole pages, sorted, merged where they touch, cut into chunks.
std::vector<Range> to_chunks(const std::vector<std::span<const std::byte>>& spans) {
  std::vector<Range> ranges;
  for (const auto& span : spans) {
    if (span.empty()) continue;
    const auto begin = reinterpret_cast<uintptr_t>(span.data());
    const auto end = begin + span.size();
    ranges.push_back({begin / kPage * kPage, (end + kPage - 1) / kPage * kPage});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  std::vector<Range> chunks;
  for (const Range& range : merged) {
    for (uintptr_t at = range.begin; at < range.end;) {
      // Ends at multiples of the chunk, so that no huge page belongs to two of them.
      const uintptr_t end = std::min(range.end, (at / kChunk + 1) * kChunk);
      chunks.push_back({at, end});
      at = end;
    }
  }
  return chunks;
}

// Kernels before 5.14 do not know MADV_POPULATE_READ: touch each page instead.
void touch_pages(const Range& range) {
  unsigned sum = 0;
  for (uintptr_t at = range.begin; at < range.end; at += kPage) {
    sum += *reinterpret_cast<const volatile unsigned char*>(at);
  }
  static_cast<void>(sum);
}

// Joins small pages of the page cache into huge ones in place. A hint: many kernels can do so for
// anonymous memory only.
void collapse(const Range& range) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // newer than the C library's headers; Linux 6.1
#endif
  if (range.end - range.begin < kHugePageBytes) return;
  madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin, kCollapse);
}

int populate_range(const Range& range) {
#ifdef MADV_POPULATE_READ
  for (;;) {
    if (madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin,
                MADV_POPULATE_READ) == 0) {
      collapse(range);
      return 0;
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    break;
  }
#endif
  touch_pages(range);
  return 0;
}

}  // namespace

void MappedFile::Unmap::operator()(const std::byte* data) const {
  munmap(const_cast<std::byte*>(data), bytes);
}

Result<MappedFile> MappedFile::map(FaultPoints& faults, File file) {
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.map").with_context(file.name()));
  if (file.size() == 0) return corrupt(file.name() + ": is empty");
  MappedFile mapped(std::move(file));
  const auto bytes = static_cast<size_t>(mapped.file_.size());
  void* memory = map_aligned(bytes, PROT_READ, MAP_SHARED, mapped.file_.descriptor());
  if (memory == MAP_FAILED) return io_error(mapped.file_.name(), errno);
  mapped.mapping_ = {static_cast<const std::byte*>(memory), Unmap(bytes)};
  MOTLEY_ASSIGN_OR_RETURN(mapped.guard_, SigbusGuard::watch(mapped.bytes(), mapped.file_.name()));
  return mapped;
}

Status populate(Context& context, std::vector<std::span<const std::byte>> ranges,
                const ProgressCallback& progress) {
  const std::vector<Range> chunks = to_chunks(ranges);
  int64_t total = 0;
  for (const Range& chunk : chunks) total += static_cast<int64_t>(chunk.end - chunk.begin);
  std::atomic<int64_t> done{0};
  std::atomic<int> error{0};
  context.threads.parallel_for(static_cast<int64_t>(chunks.size()), 1,
                               [&](int worker, int64_t begin, int64_t end) {
                                 for (int64_t i = begin; i < end && error.load() == 0; ++i) {
                                   const Range& chunk = chunks[static_cast<size_t>(i)];
                                   const int failure = populate_range(chunk);
                                   if (failure != 0) error.store(failure);
                                   done += static_cast<int64_t>(chunk.end - chunk.begin);
                                   if (worker == 0 && progress) progress(done.load(), total);
                                 }
                               });
  if (error.load() == EFAULT) {
    return corrupt("a mapped file became shorter or unreadable while it was being loaded");
  }
  if (error.load() != 0) return io_error("cannot read a mapped file", error.load());
  if (progress) progress(total, total);
  return Status::ok();
}

void release_pages(const std::vector<std::span<const std::byte>>& ranges) {
  for (const auto& range : ranges) {
    const auto address = reinterpret_cast<uintptr_t>(range.data());
    const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
    const uintptr_t end = (address + range.size()) / kPage * kPage;
    // A hint: memory is used better without these pages, and nothing depends on it.
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
}

void drop_page_cache(std::span<const MappedFile> files,
                     const std::vector<std::span<const std::byte>>& ranges) {
  for (const MappedFile& file : files) {
    for (const auto& range : ranges) {
      const std::byte* begin = file.bytes().data();
      if (range.data() < begin || range.data() >= begin + file.bytes().size()) continue;
      // A hint, as above.
      (void)posix_fadvise(file.file().descriptor(), range.data() - begin,
                          static_cast<off_t>(range.size()), POSIX_FADV_DONTNEED);
    }
  }
}

}  // namespace motley
