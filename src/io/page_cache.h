// Files whose page cache lies in small pages, read again into pages of 2 MiB.
//
// What was downloaded or copied lies in the page cache in pages of the size that its writer
// happened to use, and is mapped in 4 KiB pages; what is read through a mapping that asks for huge
// pages gets them, on file systems and kernels that can (ext4 from Linux 6.16, XFS). Reading again
// costs one pass of the drive and lasts until the cache is dropped. It is tried on one piece first,
// so a machine that cannot pays nothing.
// Thread rule: one caller; uses the context's threads.
#pragma once

#include <span>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "io/mapped_file.h"

namespace motley {

// The share of a shard's bytes in huge pages from which on it is left as it is: ends of ranges and
// pieces that the kernel could not place whole stay small.
constexpr double kWideEnough = 0.75;

struct WidenOptions {
  ProgressCallback progress;                      // on the caller's thread
  int64_t worthwhile_bytes = int64_t{256} << 20;  // shards with less in use stay as they are
};

// `ranges` are those parts of the shards that are in use and were populated. Returns the bytes that
// were read again, 0 when nothing was to gain.
Result<int64_t> widen_page_cache(Context& context, std::span<const MappedFile> shards,
                                 const std::vector<std::span<const std::byte>>& ranges,
                                 const WidenOptions& options);

}  // namespace motley
