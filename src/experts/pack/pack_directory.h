// A pack directory that is read or written: its lock, its table, its files.
//
// Whoever writes holds an exclusive lock on ".motley-lock", whoever streams from it a shared one.
// The kernel gives a lock back when its process ends, however it ends, so a killed writer is in
// nobody's way. Records are written past the page cache where the file system allows it; an entry
// of the table is written only after its record is on the drive.
// Ownership: descriptors. Thread rule: write_record from any thread, for records that differ; the
// rest from one. Fault points: io.open, io.write, and those of file.h.
// Errors: kInvalidArgument for a directory that is in use or holds something else; a full disk is
// kResourceExhausted with what is needed and what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "experts/pack/pack_manifest.h"
#include "io/file.h"
#include "io/stream/direct_file.h"

namespace motley {

// Where a record of a part is.
struct PackRecord {
  size_t layer = 0;  // index into the manifest's layers
  int expert = 0;
  int64_t offset = 0;  // in the layer's file
};

class PackDirectory {
 public:
  static constexpr std::string_view kLockName = ".motley-lock";

  enum class Access {
    kRead,    // shared; the pack may be on read-only media
    kRepair,  // exclusive, of a pack that is there; nothing but entries is written
  };
  // A pack that is there, as its manifest describes it.
  static Result<PackDirectory> open(FaultPoints& faults, const std::string& path, Access access);
  // Makes the directory or goes on with what an earlier run left there. kInvalidArgument when it
  // holds anything but a pack with this manifest.
  static Result<PackDirectory> create(FaultPoints& faults, const std::string& path,
                                      const PackManifest& manifest);

  const std::string& path() const { return path_; }
  const PackManifest& manifest() const { return manifest_; }
  PackRecord record(int64_t index) const;
  int64_t index_of(size_t layer, int expert) const;  // of a record of this part
  std::string file_path(size_t layer) const;

  const std::optional<RecordSums>& entry(int64_t index) const {
    return entries_[static_cast<size_t>(index)];
  }
  int64_t entry_count() const;  // records that the table has

  // The layer's file for reading; kCorrupt when it is missing or shorter than its records.
  Result<DirectFile> open_layer(size_t layer) const;

  // Opens the layer's file for writing and reserves its room on the drive.
  Status prepare_layer(size_t layer);
  // `record` has the layer's record bytes, is aligned to a block, and its layer is prepared.
  Status write_record(int64_t index, std::span<const std::byte> record, const RecordSums& sums);
  // Everything written so far is durable, then its entries are.
  Status commit();
  int64_t uncommitted_bytes() const { return uncommitted_bytes_; }
  // The record is damaged or missing: its entry goes, on the drive too.
  Status forget(std::span<const int64_t> indices);

 private:
  PackDirectory(FaultPoints& faults, std::string path)
      : faults_(&faults), path_(std::move(path)), mutex_(std::make_unique<std::mutex>()) {}
  Status lock(int operation, bool make);
  Status read_manifest();
  Status read_table();
  void number_records();
  Status check_new() const;
  Status write_entry(int64_t index, std::span<const std::byte> bytes);
  Status disk_error(const std::string& name, int error_number) const;

  FaultPoints* faults_;
  std::string path_;
  Descriptor lock_;
  PackManifest manifest_;
  std::vector<int64_t> first_record_;  // of each layer
  std::vector<std::optional<RecordSums>> entries_;
  Descriptor table_;                   // when writing
  std::vector<Descriptor> layers_;     // open for writing
  std::unique_ptr<std::mutex> mutex_;  // protects the two below while records are written
  std::vector<int64_t> written_;       // since the last commit
  int64_t uncommitted_bytes_ = 0;
};

}  // namespace motley
