// A new file that appears under its name only when it is complete.
//
// Written to "NAME.partial-PID" by position, then fsync, rename and fsync of the directory. A
// writer that is destroyed before publish() removes what it wrote.
// Thread rule: write_at from any thread, for disjoint ranges; the rest from one.
// Fault points: io.open, io.write, io.publish.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/fault_points.h"
#include "base/status.h"
#include "io/file.h"

namespace motley {

class FileWriter {
 public:
  static Result<FileWriter> create(FaultPoints& faults, const std::string& path);
  FileWriter(FileWriter&&) = default;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  const std::string& path() const { return path_; }
  // Reserves disk space, so that running out is known before hours of work.
  Status reserve(int64_t bytes);
  Status write_at(int64_t offset, std::span<const std::byte> bytes);
  // After this the file is complete and durable under its own name.
  Status publish();

 private:
  FileWriter() = default;
  FaultPoints* faults_ = nullptr;
  Descriptor descriptor_;
  std::string path_;
  std::string partial_path_;
};

// A whole small file at once.
Status write_file(FaultPoints& faults, const std::string& path, std::span<const std::byte> bytes);

}  // namespace motley
