// Files read by position, and the directory of a model.
//
// Purpose: every path that a checkpoint can name goes through ModelDirectory, which opens plain
// file names inside one directory and nothing else. The cache layout of the Hugging Face client
// (DIR/snapshots/REV/name -> ../../blobs/HASH) is recognised and resolved once, explicitly; any
// other symbolic link is refused, and so is one of the cache whose blob is missing. Only regular
// files are opened.
// Ownership: descriptors are closed by destruction. Thread rule: read_exact from any thread.
// Fault points: io.open, io.read. The FaultPoints must outlive the File.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fault_points.h"
#include "base/status.h"

namespace motley {

// An owned file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

class File {
 public:
  // Opens by path; symbolic links are followed (the path is the user's own).
  static Result<File> open(FaultPoints& faults, const std::string& path);
  // Takes a descriptor that is open for reading. Refuses anything but a regular file.
  static Result<File> adopt(FaultPoints& faults, Descriptor descriptor, std::string name);

  const std::string& name() const { return name_; }  // for messages
  int64_t size() const { return size_; }             // when opened
  int descriptor() const { return descriptor_.get(); }

  // Fills `out` from `offset` or fails; a range beyond the end is kCorrupt.
  Status read_exact(int64_t offset, std::span<std::byte> out) const;
  // The whole file as text, at most `max_bytes`.
  Result<std::string> read_text(int64_t max_bytes) const;
  // kCorrupt when size or modification time differ from those at opening.
  Status check_unchanged() const;

 private:
  File() = default;
  FaultPoints* faults_ = nullptr;
  Descriptor descriptor_;
  std::string name_;
  int64_t size_ = 0;
  int64_t modified_ns_ = 0;
};

class ModelDirectory {
 public:
  static Result<ModelDirectory> open(FaultPoints& faults, const std::string& path);

  const std::string& path() const { return path_; }
  // kNotFound when there is no such file; kInvalidArgument when `name` is not a plain file name.
  Result<File> open_file(std::string_view name) const;
  bool contains(std::string_view name) const;
  // The whole file as text, at most `max_bytes`.
  Result<std::string> read_text(std::string_view name, int64_t max_bytes) const;

 private:
  ModelDirectory() = default;
  Result<Descriptor> open_cache_link(const std::string& name) const;

  FaultPoints* faults_ = nullptr;
  Descriptor descriptor_;
  std::string path_;
};

// Not empty, no '/', no NUL, not "." or "..", at most 255 bytes.
bool is_plain_file_name(std::string_view name);

}  // namespace motley
