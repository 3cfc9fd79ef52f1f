#include "io/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace motley {

Result<FileWriter> FileWriter::create(FaultPoints& faults, const std::string& path) {
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  FileWriter writer;
  writer.faults_ = &faults;
  writer.path_ = path;
  const std::string partial = fmt::format("{}.partial-{}", path, getpid());
  writer.descriptor_ = Descriptor(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!writer.descriptor_.is_open()) return io_error(partial, errno);
  writer.partial_path_ = partial;
  return writer;
}

FileWriter::~FileWriter() {
  if (descriptor_.is_open() && !partial_path_.empty()) unlink(partial_path_.c_str());
}

Status FileWriter::reserve(int64_t bytes) {
  if (bytes == 0) return Status::ok();
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(descriptor_.get(), 0, bytes);
  if (error == ENOSPC) {
    return resource_exhausted(fmt::format("{}: no room for {} bytes on the disk", path_, bytes));
  }
  return error == 0 ? Status::ok() : io_error(path_, error);
}

Status FileWriter::write_at(int64_t offset, std::span<const std::byte> bytes) {
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.write").with_context(path_));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pwrite(descriptor_.get(), bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error(path_, errno);
    done += static_cast<size_t>(count);
  }
  return Status::ok();
}

Status FileWriter::publish() {
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.publish").with_context(path_));
  while (fsync(descriptor_.get()) != 0) {
    if (errno != EINTR) return io_error(path_, errno);
  }
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) return io_error(path_, errno);
  partial_path_.clear();
  descriptor_.close();
  const std::string parent =
      std::filesystem::absolute(std::filesystem::path(path_)).parent_path().string();
  const Descriptor directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open() || fsync(directory.get()) != 0) return io_error(parent, errno);
  return Status::ok();
}

Status write_file(FaultPoints& faults, const std::string& path, std::span<const std::byte> bytes) {
  MOTLEY_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::create(faults, path));
  MOTLEY_RETURN_IF_ERROR(writer.write_at(0, bytes));
  return writer.publish();
}

}  // namespace motley
