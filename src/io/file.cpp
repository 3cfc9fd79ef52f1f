#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace motley {
namespace {

// O_NONBLOCK keeps the open of a FIFO from hanging; regular files ignore it.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

int64_t modification_time_ns(const struct stat& facts) {
  return int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

Status open_error(const std::string& name, int error_number) {
  if (error_number == ENOENT) return not_found(name + ": no such file");
  return io_error(name, error_number);
}

Status link_refused(const std::string& name) {
  return invalid_argument(name +
                          ": is a symbolic link, and none is followed in a model directory; put "
                          "the file itself or a hard link there, or use the layout of the Hugging "
                          "Face cache");
}

// What a link of a cache points to cannot be opened. Never kNotFound: the name itself exists.
Status blob_error(const std::string& name, const std::string& target, int error_number) {
  if (error_number == ELOOP) return link_refused(name);
  if (error_number == ENOENT) {
    return corrupt(fmt::format("{}: is a link to {}, which is missing; download the file again",
                               name, target));
  }
  return io_error(name, error_number);
}

// True when DIR/.. is the directory "snapshots" of DIR/../.., as in a Hugging Face cache.
bool is_cache_snapshot(int directory) {
  struct stat parent{};
  struct stat snapshots{};
  return fstatat(directory, "..", &parent, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstatat(directory, "../../snapshots", &snapshots, AT_SYMLINK_NOFOLLOW) == 0 &&
         parent.st_dev == snapshots.st_dev && parent.st_ino == snapshots.st_ino;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<File> File::open(FaultPoints& faults, const std::string& path) {
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  Descriptor descriptor(::open(path.c_str(), kReadFlags));
  if (!descriptor.is_open()) return open_error(path, errno);
  return adopt(faults, std::move(descriptor), path);
}

Result<File> File::adopt(FaultPoints& faults, Descriptor descriptor, std::string name) {
  struct stat facts{};
  if (fstat(descriptor.get(), &facts) != 0) return io_error(name, errno);
  if (!S_ISREG(facts.st_mode)) return invalid_argument(name + ": is not a regular file");
  File file;
  file.faults_ = &faults;
  file.descriptor_ = std::move(descriptor);
  file.name_ = std::move(name);
  file.size_ = facts.st_size;
  file.modified_ns_ = modification_time_ns(facts);
  return file;
}

Status File::read_exact(int64_t offset, std::span<std::byte> out) const {
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.read").with_context(name_));
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = pread(descriptor_.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error(name_, errno);
    if (count == 0) {
      return corrupt(fmt::format("{}: ends at byte {}, needed {} bytes from {}", name_,
                                 offset + static_cast<int64_t>(done), out.size(), offset));
    }
    done += static_cast<size_t>(count);
  }
  return Status::ok();
}

Result<std::string> File::read_text(int64_t max_bytes) const {
  if (size_ > max_bytes) {
    return corrupt(fmt::format("{}: {} bytes exceed the limit of {}", name_, size_, max_bytes));
  }
  std::string text(static_cast<size_t>(size_), '\0');
  MOTLEY_RETURN_IF_ERROR(read_exact(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status File::check_unchanged() const {
  struct stat facts{};
  if (fstat(descriptor_.get(), &facts) != 0) return io_error(name_, errno);
  if (facts.st_size != size_ || modification_time_ns(facts) != modified_ns_) {
    return corrupt(name_ + ": changed while it was being read; load it again");
  }
  return Status::ok();
}

Result<ModelDirectory> ModelDirectory::open(FaultPoints& faults, const std::string& path) {
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  ModelDirectory directory;
  directory.faults_ = &faults;
  directory.path_ = path;
  directory.descriptor_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.descriptor_.is_open()) {
    if (errno == ENOTDIR) return invalid_argument(path + ": is not a directory; give the model's");
    if (errno == ENOENT) return not_found(path + ": no such directory");
    return io_error(path, errno);
  }
  return directory;
}

Result<File> ModelDirectory::open_file(std::string_view name) const {
  const std::string plain(name);
  const std::string full = path_ + "/" + plain;
  if (!is_plain_file_name(name)) {
    return invalid_argument(fmt::format("{}: '{}' is not a plain file name", path_, name));
  }
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.open").with_context(full));
  Descriptor descriptor(openat(descriptor_.get(), plain.c_str(), kReadFlags | O_NOFOLLOW));
  if (!descriptor.is_open()) {
    if (errno != ELOOP) return open_error(full, errno);
    MOTLEY_ASSIGN_OR_RETURN(descriptor, open_cache_link(plain));
  }
  return File::adopt(*faults_, std::move(descriptor), full);
}

Result<Descriptor> ModelDirectory::open_cache_link(const std::string& name) const {
  constexpr std::string_view kBlobs = "../../blobs/";
  const std::string full = path_ + "/" + name;
  std::array<char, 4096> buffer{};
  const ssize_t length = readlinkat(descriptor_.get(), name.c_str(), buffer.data(), buffer.size());
  if (length < 0) return io_error(full, errno);
  const std::string target(buffer.data(), static_cast<size_t>(length));
  const bool names_blob = target.starts_with(kBlobs) &&
                          is_plain_file_name(std::string_view(target).substr(kBlobs.size()));
  if (!names_blob || !is_cache_snapshot(descriptor_.get())) return link_refused(full);
  const Descriptor blobs(
      openat(descriptor_.get(), "../../blobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!blobs.is_open()) return blob_error(full, target, errno);
  Descriptor blob(openat(blobs.get(), target.c_str() + kBlobs.size(), kReadFlags | O_NOFOLLOW));
  if (!blob.is_open()) return blob_error(full, target, errno);
  return blob;
}

bool ModelDirectory::contains(std::string_view name) const {
  struct stat facts{};
  return is_plain_file_name(name) &&
         fstatat(descriptor_.get(), std::string(name).c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<std::string> ModelDirectory::read_text(std::string_view name, int64_t max_bytes) const {
  MOTLEY_ASSIGN_OR_RETURN(const File file, open_file(name));
  return file.read_text(max_bytes);
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace motley
