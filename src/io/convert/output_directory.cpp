#include "io/convert/output_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

#include "io/file.h"
#include "io/file_writer.h"

namespace motley {

Result<OutputDirectory> OutputDirectory::create(FaultPoints& faults, const std::string& path) {
  OutputDirectory output(faults);
  output.path_ = path;
  MOTLEY_RETURN_IF_ERROR(output.make_directories());
  MOTLEY_RETURN_IF_ERROR(output.lock());
  MOTLEY_RETURN_IF_ERROR(output.check_empty());
  return output;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : faults_(other.faults_),
      path_(std::move(other.path_)),
      directories_(std::exchange(other.directories_, {})),
      files_(std::exchange(other.files_, {})) {}

OutputDirectory::~OutputDirectory() {
  for (const std::string& file : files_) unlink(file.c_str());
  // A directory that somebody has put something into meanwhile is not empty and stays.
  for (auto made = directories_.rbegin(); made != directories_.rend(); ++made) {
    rmdir(made->c_str());
  }
}

Status OutputDirectory::make_directories() {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path at = path_; !at.empty() && !std::filesystem::exists(at, error);
       at = at.parent_path()) {
    missing.push_back(at);
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    const bool made = std::filesystem::create_directory(*at, error);
    if (error) return io_error(fmt::format("cannot create {}: {}", at->string(), error.message()));
    if (made) directories_.push_back(at->string());
  }
  return Status::ok();
}

Status OutputDirectory::lock() {
  const std::string name = fmt::format("{}/{}", path_, kLockName);
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.open").with_context(name));
  const Descriptor file(
      ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.is_open()) {
    files_.push_back(name);
    return Status::ok();
  }
  if (errno == ENOTDIR)
    return invalid_argument(path_ + ": is not a directory; choose another name");
  if (errno != EEXIST) return io_error(name, errno);
  return invalid_argument(
      fmt::format("{}: another motley is writing there; if none is, one was killed and left {} and "
                  "unfinished files: delete them or choose another directory",
                  path_, kLockName));
}

Status OutputDirectory::check_empty() const {
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    if (entry->path().filename() != kLockName) {
      return invalid_argument(path_ + ": the directory is not empty; choose another");
    }
    entry.increment(error);
  }
  if (error) return io_error("cannot read " + path_ + ": " + error.message());
  return Status::ok();
}

std::string OutputDirectory::add(std::string_view name) {
  files_.push_back(fmt::format("{}/{}", path_, name));
  return files_.back();
}

Status OutputDirectory::write(std::string_view name, std::string_view text) {
  return write_file(*faults_, add(name), std::as_bytes(std::span(text)));
}

Status OutputDirectory::finish() {
  const std::string& lock_file = files_.front();
  if (unlink(lock_file.c_str()) != 0) return io_error(lock_file, errno);
  files_.clear();
  directories_.clear();
  return Status::ok();
}

}  // namespace motley
