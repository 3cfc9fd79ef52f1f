// A file read past the page cache.
//
// Purpose: reads that land straight in the buffer that the kernels compute from. O_DIRECT wants
// offset, length and address in multiples of the drive's block; the file says which, and gives the
// aligned range around any range of bytes. Where the file system refuses O_DIRECT (tmpfs on older
// kernels, some network and user-space file systems) reads are buffered and dropped from the page
// cache afterwards; reason() says why, and the alignment rules stay the same.
// Units: bytes. Ownership: its own descriptor, opened from that of a File, so that the name is
// resolved once; the File may be closed afterwards. Thread rule: const methods from any thread.
// Errors: kIo when no descriptor can be had. Fault point: io.stream.direct (O_DIRECT is refused).
// Source: open(2), statx(2).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/fault_points.h"
#include "base/status.h"
#include "io/file.h"

namespace motley {

struct FileRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

enum class CacheUse {
  kBypass,    // O_DIRECT where it works
  kBuffered,  // never O_DIRECT, for drives where a probe found it slower
};

class DirectFile {
 public:
  static Result<DirectFile> open(FaultPoints& faults, const File& file,
                                 CacheUse use = CacheUse::kBypass);

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }  // when opened; need not be a multiple of the block
  int descriptor() const { return descriptor_.get(); }
  dev_t device() const { return device_; }  // files with the same one share a drive

  bool is_direct() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }  // why not direct, else empty
  // Offsets and lengths are multiples of block_bytes(), addresses of memory_alignment(). Both are
  // powers of two, at most AlignedBuffer::kAlignment.
  int64_t block_bytes() const { return block_bytes_; }
  int64_t memory_alignment() const { return memory_alignment_; }

  // The smallest aligned range that covers `bytes` from `offset`, which must lie in the file. It
  // may reach past the end of the file: a read there returns present_bytes() of it.
  FileRange aligned_range(int64_t offset, int64_t bytes) const;
  int64_t present_bytes(FileRange range) const;

  // Reads until `out` is full or the file ends; returns the bytes, or an errno as a negative
  // number. Blocks.
  int64_t read(int64_t offset, std::span<std::byte> out) const;
  // After a buffered read: the page cache forgets it. Does nothing for a direct file.
  void drop_cached(FileRange range) const;

 private:
  DirectFile() = default;
  Status open_direct(const File& file);
  Status try_block(int64_t block_bytes);

  Descriptor descriptor_;
  std::string name_;
  std::string reason_;
  int64_t size_ = 0;
  int64_t block_bytes_ = 0;
  int64_t memory_alignment_ = 0;
  dev_t device_ = 0;
};

}  // namespace motley
