// Whether packs fit on their drives.
// Units: bytes. Thread rule: free functions, which look at the file system.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "experts/pack/pack_manifest.h"

namespace motley {

struct PackSpace {
  int64_t needed_bytes = 0;  // beyond what the directory's files have taken already
  int64_t free_bytes = 0;    // for this user
  uint64_t device = 0;
};
// `directory` need not be there yet.
Result<PackSpace> pack_space(const std::string& directory, const PackManifest& manifest);

// Before anything is written: kResourceExhausted with the arithmetic when they do not fit.
// Directories on one drive are added up. manifests[i] is that of directories[i].
Status check_pack_space(std::span<const std::string> directories,
                        std::span<const PackManifest> manifests);

// What a writer says that ran out of room.
Status disk_full(const std::string& directory, const PackManifest& manifest);

}  // namespace motley
