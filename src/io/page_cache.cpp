#include "io/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <optional>

#include "base/huge_pages.h"
#include "base/system_memory.h"

namespace motley {
namespace {

using Ranges = std::vector<std::span<const std::byte>>;

constexpr int kTrials = 4;

int64_t total_bytes(const Ranges& ranges) {
  int64_t bytes = 0;
  for (const auto& range : ranges) bytes += static_cast<int64_t>(range.size());
  return bytes;
}

bool contains(std::span<const std::byte> outer, std::span<const std::byte> inner) {
  return inner.data() >= outer.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

Ranges ranges_of(const MappedFile& shard, const Ranges& ranges) {
  Ranges own;
  for (const auto& range : ranges) {
    if (contains(shard.bytes(), range)) own.push_back(range);
  }
  return own;
}

// Takes the pages out of this process, then out of the page cache unless someone else holds them.
void evict(const MappedFile& shard, int64_t offset, int64_t bytes) {
  auto* address = const_cast<std::byte*>(shard.bytes().data() + offset);
  madvise(address, static_cast<size_t>(bytes), MADV_DONTNEED);
  posix_fadvise(shard.file().descriptor(), offset, bytes, POSIX_FADV_DONTNEED);
}

// Whether a piece that is read again comes back as a huge page.
bool reading_again_helps(const MappedFile& shard) {
  constexpr auto kPiece = static_cast<int64_t>(kHugePageBytes);
  const int64_t pieces = shard.file().size() / kPiece;
  const uint64_t before = huge_mapped_bytes(shard.bytes());
  for (int trial = 0; trial < kTrials; ++trial) {
    const int64_t offset = pieces * (2 * trial + 1) / (2 * kTrials) * kPiece;
    evict(shard, offset, kPiece);
    const volatile std::byte* touched = shard.bytes().data() + offset;
    static_cast<void>(*touched);
    if (huge_mapped_bytes(shard.bytes()) > before) return true;
  }
  return false;
}

}  // namespace

Result<int64_t> widen_page_cache(Context& context, std::span<const MappedFile> shards,
                                 const Ranges& ranges, const WidenOptions& options) {
  std::optional<HugeMappings> mappings;
  Ranges again;
  std::vector<const MappedFile*> files;
  for (const MappedFile& shard : shards) {
    const Ranges own = ranges_of(shard, ranges);
    const int64_t needed = total_bytes(own);
    if (needed < options.worthwhile_bytes) continue;
    if (!mappings) mappings.emplace();
    const auto huge = static_cast<double>(mappings->bytes_in(shard.bytes()));
    if (huge >= kWideEnough * static_cast<double>(needed)) continue;
    again.insert(again.end(), own.begin(), own.end());
    files.push_back(&shard);
  }
  if (files.empty()) return int64_t{0};
  // A model that does not fit is read again and again anyway.
  const auto memory = read_system_memory();
  if (!memory.is_ok() || memory->usable_now_bytes() < static_cast<uint64_t>(total_bytes(ranges))) {
    return int64_t{0};
  }
  if (!reading_again_helps(*files.front())) return int64_t{0};
  for (const MappedFile* file : files) evict(*file, 0, file->file().size());
  MOTLEY_RETURN_IF_ERROR(populate(context, again, options.progress));
  return total_bytes(again);
}

}  // namespace motley
