// A whole file mapped read-only, with populate on request and SIGBUS handled (sigbus_guard.h).
//
// Ownership: unmapped by destruction; every span into it must be gone by then.
// Thread rule: the bytes may be read from any thread. Fault point: io.map.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "io/file.h"
#include "io/sigbus_guard.h"

namespace motley {

class MappedFile {
 public:
  static Result<MappedFile> map(FaultPoints& faults, File file);

  const File& file() const { return file_; }
  std::span<const std::byte> bytes() const {
    return {mapping_.get(), static_cast<size_t>(file_.size())};
  }

 private:
  struct Unmap {
    Unmap() : bytes(0) {}
    explicit Unmap(size_t mapped_bytes) : bytes(mapped_bytes) {}
    size_t bytes;
    void operator()(const std::byte* data) const;
  };

  explicit MappedFile(File file) : file_(std::move(file)) {}
  File file_;
  std::unique_ptr<const std::byte, Unmap> mapping_;
  SigbusGuard guard_;
};

// Called with bytes done and in total, always on the caller's thread.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

// Brings ranges of mapped memory into the page tables (and from disk, where needed), on all
// threads of the context. Ranges are merged where they touch.
Status populate(Context& context, std::vector<std::span<const std::byte>> ranges,
                const ProgressCallback& progress);

// Drops whole pages of the ranges from this process; reading them again brings them back.
void release_pages(const std::vector<std::span<const std::byte>>& ranges);

// Tells the kernel that the released ranges of these files need not stay in its page cache.
void drop_page_cache(std::span<const MappedFile> files,
                     const std::vector<std::span<const std::byte>>& ranges);

}  // namespace motley
