#include "io/stream/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/aligned_buffer.h"

namespace motley {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kSectorBytes = 512;
static_assert(AlignedBuffer::kAlignment == kPageBytes);

struct Alignment {
  int64_t offset_bytes = 0;  // 0: the kernel does not say
  int64_t memory_bytes = 0;
};

// Linux 6.1 and later, for file systems that answer. kUnsupported when they answer "not at all".
Result<Alignment> stated_alignment(int descriptor) {
  Alignment alignment;
#ifdef STATX_DIOALIGN
  struct statx facts{};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) != 0) return alignment;
  if ((facts.stx_mask & STATX_DIOALIGN) == 0) return alignment;
  alignment = {facts.stx_dio_offset_align, facts.stx_dio_mem_align};
  if (alignment.offset_bytes == 0) return unsupported("the file system has no direct reads");
  const auto is_usable = [](int64_t bytes) {
    return std::has_single_bit(static_cast<uint64_t>(bytes)) && bytes <= kPageBytes;
  };
  if (!is_usable(alignment.offset_bytes) || !is_usable(alignment.memory_bytes)) {
    return unsupported(fmt::format("direct reads would need an alignment of {} and {} bytes",
                                   alignment.offset_bytes, alignment.memory_bytes));
  }
#endif
  return alignment;
}

}  // namespace

Result<DirectFile> DirectFile::open(FaultPoints& faults, const File& file, CacheUse use) {
  DirectFile direct;
  direct.name_ = file.name();
  direct.size_ = file.size();
  struct stat facts{};
  if (fstat(file.descriptor(), &facts) != 0) return io_error(file.name(), errno);
  direct.device_ = facts.st_dev;
  Status refused = use == CacheUse::kBuffered ? unsupported("buffered reads were asked for")
                                              : faults.visit("io.stream.direct");
  if (refused.is_ok()) refused = direct.open_direct(file);
  if (refused.is_ok()) return direct;
  direct.reason_ = refused.message();
  direct.block_bytes_ = direct.memory_alignment_ = kPageBytes;
  direct.descriptor_ = Descriptor(fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
  if (!direct.descriptor_.is_open()) return io_error(file.name(), errno);
  return direct;
}

Status DirectFile::open_direct(const File& file) {
  const std::string link = fmt::format("/proc/self/fd/{}", file.descriptor());
  descriptor_ = Descriptor(::open(link.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!descriptor_.is_open()) {
    return errno == EINVAL ? unsupported("the file system refuses O_DIRECT")
                           : io_error("cannot open with O_DIRECT", errno);
  }
  MOTLEY_ASSIGN_OR_RETURN(const Alignment stated, stated_alignment(descriptor_.get()));
  if (stated.offset_bytes != 0) {
    MOTLEY_RETURN_IF_ERROR(try_block(std::max(stated.offset_bytes, kSectorBytes)));
    memory_alignment_ = stated.memory_bytes;
    return Status::ok();
  }
  // Only root may ask the drive itself (BLKSSZGET); a read shows as well whether a block will do.
  if (try_block(kSectorBytes).is_ok()) return Status::ok();
  return try_block(kPageBytes);
}

// Some file systems accept the flag and refuse the reads.
Status DirectFile::try_block(int64_t block_bytes) {
  MOTLEY_ASSIGN_OR_RETURN(AlignedBuffer block,
                          AlignedBuffer::allocate(static_cast<size_t>(block_bytes)));
  const ssize_t count = pread(descriptor_.get(), block.data(), block.size(), 0);
  if (count < 0) return io_error("a direct read was refused", errno);
  block_bytes_ = memory_alignment_ = block_bytes;
  return Status::ok();
}

FileRange DirectFile::aligned_range(int64_t offset, int64_t bytes) const {
  MOTLEY_CHECK(offset >= 0 && bytes >= 0 && offset <= size_ && bytes <= size_ - offset,
               "a range outside the file");
  const int64_t mask = block_bytes_ - 1;
  const int64_t begin = offset & ~mask;
  return {begin, ((offset + bytes + mask) & ~mask) - begin};
}

int64_t DirectFile::present_bytes(FileRange range) const {
  return std::clamp<int64_t>(size_ - range.offset, 0, range.bytes);
}

int64_t DirectFile::read(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = pread(descriptor_.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -errno;
    if (count == 0) break;
    done += static_cast<size_t>(count);
    // The end of the file: going on from an unaligned place would be refused.
    if (static_cast<int64_t>(done) % block_bytes_ != 0) break;
  }
  return static_cast<int64_t>(done);
}

void DirectFile::drop_cached(FileRange range) const {
  if (is_direct()) return;
  // Only a hint, as is its result.
  static_cast<void>(
      posix_fadvise(descriptor_.get(), range.offset, range.bytes, POSIX_FADV_DONTNEED));
}

}  // namespace motley
