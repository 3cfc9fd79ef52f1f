// Writes the routed experts of a checkpoint as packs, or completes and repairs packs.
//
// What a directory has already is read and checked first; only records whose bytes have the
// checksum of their entry are kept. Everything else is read from the checkpoint, by all threads,
// past the page cache, and written in order of layers. Entries are written after their records are
// on the drive, every few hundred megabytes, so that little is lost however the program ends.
// Memory: a few records per thread and about 100 MB.
// Thread rule: the thread that owns the context. Errors: kCancelled when stopped,
// kResourceExhausted when the disk is too small or full (pack_space.h), kIo naming file and place;
// after any of them the same call goes on with what was written.
// Fault points: those of pack_directory.h and of the read scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "experts/pack/pack_model.h"
#include "io/mapped_file.h"
#include "io/stream/read_backend.h"

namespace motley {

struct PackOptions {
  std::vector<std::string> directories;  // distinct, not empty
  bool mirror = false;  // each directory gets all experts; otherwise they are split
  ReadBackendKind io = ReadBackendKind::kAuto;
  ProgressCallback progress;   // bytes kept or written, of all directories
  std::function<bool()> stop;  // asked between batches; may be empty
};

struct PackResult {
  int64_t records = 0;  // of all directories
  int64_t bytes = 0;
  int64_t kept = 0;      // were there and right
  int64_t repaired = 0;  // were there and damaged
  int64_t written = 0;   // repaired ones among them
  double seconds = 0;
};

// What each directory will be, and that all fit: as the writer checks it before it begins.
Result<std::vector<PackManifest>> plan_packs(const PackModel& model, const PackOptions& options);

Result<PackResult> write_packs(Context& context, const PackModel& model,
                               const PackOptions& options);

}  // namespace motley
