// Reads a pack again and says which records are not what was written.
//
// Records whose bytes have another checksum than their entry, or cannot be read, lose their entry,
// so that "motley pack" writes them again and nothing is streamed from them.
// Thread rule: the thread that owns the context. Errors: kCancelled when stopped; kInvalidArgument
// for what is no pack.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "experts/pack/pack_directory.h"
#include "io/mapped_file.h"
#include "io/stream/read_backend.h"

namespace motley {

struct DamagedRecord {
  int64_t index = 0;
  int layer = 0;
  int expert = 0;
  bool gate_up = false;  // which parts
  bool down = false;
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string reason;
};

struct PackCheck {
  int64_t records = 0;  // of the part
  int64_t missing = 0;  // without an entry: not written, or found damaged before
  int64_t read_bytes = 0;
  std::vector<DamagedRecord> damaged;  // in order
  bool marked = false;  // their entries are gone; false where the pack cannot be written now
  double seconds = 0;
};

struct PackCheckOptions {
  ReadBackendKind io = ReadBackendKind::kAuto;
  ProgressCallback progress;   // bytes read; may be empty
  std::function<bool()> stop;  // asked between batches; may be empty
};

// Of a pack that is open for writing: reads the records that have an entry; forgets the damaged.
Result<PackCheck> check_records(Context& context, PackDirectory& pack,
                                const PackCheckOptions& options);
// Of a pack that nobody writes.
Result<PackCheck> check_pack(Context& context, const std::string& directory,
                             const PackCheckOptions& options);

}  // namespace motley
