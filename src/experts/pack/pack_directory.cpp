#include "experts/pack/pack_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "experts/pack/pack_space.h"
#include "io/file_writer.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxManifestBytes = int64_t{4} << 20;

Result<Descriptor> open_to_write(const std::string& name, int flags) {
  Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0644));
  if (!file.is_open() && errno == EINVAL && flags != 0) return open_to_write(name, 0);
  if (!file.is_open()) return io_error(name, errno);
  return file;
}

// All of it, or an errno. A file system that refuses direct writes gets buffered ones.
int write_all(int descriptor, int64_t offset, std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pwrite(descriptor, bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (count > 0) {
      done += static_cast<size_t>(count);
      continue;
    }
    if (count == 0) return EIO;
    if (errno == EINTR) continue;
    const int error = errno;
    const int flags = fcntl(descriptor, F_GETFL);
    if (error != EINVAL || (flags & O_DIRECT) == 0) return error;
    if (fcntl(descriptor, F_SETFL, flags & ~O_DIRECT) != 0) return error;
  }
  return 0;
}

int sync_data(int descriptor) {
  while (fdatasync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// The manifest of another run that was killed while it wrote it.
bool is_left_over(const std::string& name) {
  return name.starts_with(fmt::format("{}.partial-", kPackManifestName));
}

// Which checkpoint or split differs, for a pack that is not the expected one.
std::string difference(const PackManifest& there, const PackManifest& wanted) {
  if (there.source == wanted.source && there.layers == wanted.layers) {
    return fmt::format("holds part {} of {} of this model, not part {} of {}", there.part + 1,
                       there.parts, wanted.part + 1, wanted.parts);
  }
  return "holds the experts of another checkpoint";
}

}  // namespace

Result<PackDirectory> PackDirectory::open(FaultPoints& faults, const std::string& path,
                                          Access access) {
  PackDirectory pack(faults, path);
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  std::error_code error;
  if (!fs::is_directory(path, error)) return not_found(path + ": no such directory");
  if (!fs::exists(fs::path(path) / kPackManifestName, error)) {
    return invalid_argument(fmt::format("{}: is no pack, {} is missing; \"motley pack\" makes one",
                                        path, kPackManifestName));
  }
  const bool repairs = access == Access::kRepair;
  MOTLEY_RETURN_IF_ERROR(pack.lock(repairs ? LOCK_EX : LOCK_SH, repairs));
  MOTLEY_RETURN_IF_ERROR(pack.read_manifest());
  if (repairs) {
    MOTLEY_ASSIGN_OR_RETURN(pack.table_,
                            open_to_write(fmt::format("{}/{}", path, kPackTableName), 0));
  }
  MOTLEY_RETURN_IF_ERROR(pack.read_table());
  return pack;
}

Result<PackDirectory> PackDirectory::create(FaultPoints& faults, const std::string& path,
                                            const PackManifest& manifest) {
  PackDirectory pack(faults, path);
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return io_error(fmt::format("cannot create {}: {}", path, error.message()));
  MOTLEY_RETURN_IF_ERROR(pack.lock(LOCK_EX, true));
  if (fs::exists(fs::path(path) / kPackManifestName, error)) {
    MOTLEY_RETURN_IF_ERROR(pack.read_manifest());
    if (!(pack.manifest_ == manifest)) {
      return invalid_argument(fmt::format("{}: {}; choose another directory", path,
                                          difference(pack.manifest_, manifest)));
    }
  } else {
    MOTLEY_RETURN_IF_ERROR(pack.check_new());
    pack.manifest_ = manifest;
    const std::string text = format_pack_manifest(manifest);
    const Status written = write_file(faults, fmt::format("{}/{}", path, kPackManifestName),
                                      std::as_bytes(std::span(text)));
    MOTLEY_RETURN_IF_ERROR(written);
    pack.number_records();
  }
  MOTLEY_ASSIGN_OR_RETURN(pack.table_,
                          open_to_write(fmt::format("{}/{}", path, kPackTableName), 0));
  MOTLEY_RETURN_IF_ERROR(pack.read_table());
  const int64_t table_bytes = pack.manifest_.records() * kPackEntryBytes;
  if (ftruncate(pack.table_.get(), table_bytes) != 0) {
    return pack.disk_error(std::string(kPackTableName), errno);
  }
  return pack;
}

Status PackDirectory::lock(int operation, bool make) {
  const std::string name = fmt::format("{}/{}", path_, kLockName);
  const int flags = make ? O_RDWR | O_CREAT : O_RDONLY;
  lock_ = Descriptor(::open(name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!lock_.is_open()) {
    // A copy without the lock file, which nobody can be writing to as it is.
    if (!make && (errno == ENOENT || errno == EACCES)) return Status::ok();
    return io_error(name, errno);
  }
  if (flock(lock_.get(), operation | LOCK_NB) == 0) return Status::ok();
  if (errno != EWOULDBLOCK) return make ? io_error(name, errno) : Status::ok();
  return invalid_argument(
      operation == LOCK_SH
          ? path_ + ": \"motley pack\" is writing there; wait until it has ended"
          : path_ + ": is in use by another motley, which writes it or streams from it");
}

Status PackDirectory::read_manifest() {
  const std::string name = fmt::format("{}/{}", path_, kPackManifestName);
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(*faults_, name));
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, file.read_text(kMaxManifestBytes));
  MOTLEY_ASSIGN_OR_RETURN(manifest_, parse_pack_manifest(text, name));
  number_records();
  return Status::ok();
}

void PackDirectory::number_records() {
  int64_t next = 0;
  for (size_t i = 0; i < manifest_.layers.size(); ++i) {
    first_record_.push_back(next);
    next += manifest_.records_of(i);
  }
  layers_.resize(manifest_.layers.size());
}

Status PackDirectory::read_table() {
  std::vector<std::byte> bytes;
  const std::string name = fmt::format("{}/{}", path_, kPackTableName);
  Result<File> file = File::open(*faults_, name);
  if (!file.is_ok() && file.status().code() != StatusCode::kNotFound) return file.status();
  if (file.is_ok()) {
    const int64_t most = manifest_.records() * kPackEntryBytes;
    bytes.resize(static_cast<size_t>(std::min(file->size(), most)));
    MOTLEY_RETURN_IF_ERROR(file->read_exact(0, bytes));
  }
  entries_ = parse_pack_table(manifest_, bytes);
  return Status::ok();
}

// A directory without a manifest may only hold what a killed writer leaves.
Status PackDirectory::check_new() const {
  std::error_code error;
  fs::directory_iterator entry(path_, error);
  while (!error && entry != fs::directory_iterator()) {
    const std::string name = entry->path().filename().string();
    if (name != kLockName && !is_left_over(name)) {
      return invalid_argument(path_ + ": the directory is not empty and no pack; choose another");
    }
    if (name != kLockName) fs::remove(entry->path(), error);
    entry.increment(error);
  }
  if (error) return io_error("cannot read " + path_ + ": " + error.message());
  return Status::ok();
}

PackRecord PackDirectory::record(int64_t index) const {
  const auto layer =
      static_cast<size_t>(std::upper_bound(first_record_.begin(), first_record_.end(), index) -
                          first_record_.begin() - 1);
  const int64_t position = index - first_record_[layer];
  const PackLayer& of = manifest_.layers[layer];
  return {.layer = layer,
          .expert = expert_at(manifest_.parts, manifest_.part, of.layer, position),
          .offset = position * of.record_bytes()};
}

int64_t PackDirectory::index_of(size_t layer, int expert) const {
  return first_record_[layer] + position_in_part(manifest_.parts, expert);
}

std::string PackDirectory::file_path(size_t layer) const {
  return fmt::format("{}/{}", path_, layer_file_name(manifest_.layers[layer].layer));
}

int64_t PackDirectory::entry_count() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry.has_value(); });
}

Result<DirectFile> PackDirectory::open_layer(size_t layer) const {
  const Result<File> file = File::open(*faults_, file_path(layer));
  const int64_t wanted = manifest_.records_of(layer) * manifest_.layers[layer].record_bytes();
  const int64_t size = file.is_ok() ? file->size() : 0;
  if (!file.is_ok() && file.status().code() != StatusCode::kNotFound) return file.status();
  if (size < wanted) {
    return corrupt(fmt::format("{}: has {} of {} bytes; \"motley pack\" repairs it",
                               file_path(layer), size, wanted));
  }
  return DirectFile::open(*faults_, *file);
}

Status PackDirectory::prepare_layer(size_t layer) {
  if (layers_[layer].is_open()) return Status::ok();
  const std::string name = file_path(layer);
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.open").with_context(name));
  MOTLEY_ASSIGN_OR_RETURN(Descriptor file, open_to_write(name, O_DIRECT));
  const int64_t bytes = manifest_.records_of(layer) * manifest_.layers[layer].record_bytes();
  int result = -1;
  do {
    result = fallocate(file.get(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  // Where room cannot be reserved, writing finds out.
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) return disk_error(name, errno);
  layers_[layer] = std::move(file);
  return Status::ok();
}

Status PackDirectory::write_record(int64_t index, std::span<const std::byte> record,
                                   const RecordSums& sums) {
  const PackRecord place = this->record(index);
  const std::string name = file_path(place.layer);
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.write").with_context(name));
  const int error = write_all(layers_[place.layer].get(), place.offset, record);
  if (error != 0) return disk_error(name, error);
  const std::lock_guard lock(*mutex_);
  entries_[static_cast<size_t>(index)] = sums;
  written_.push_back(index);
  uncommitted_bytes_ += static_cast<int64_t>(record.size());
  return Status::ok();
}

Status PackDirectory::commit() {
  if (written_.empty()) return Status::ok();
  std::sort(written_.begin(), written_.end());
  size_t last_layer = layers_.size();
  for (const int64_t index : written_) {
    const size_t layer = record(index).layer;
    if (layer == last_layer) continue;
    last_layer = layer;
    const int descriptor = layers_[layer].get();
    if (const int error = sync_data(descriptor)) return disk_error(file_path(layer), error);
    // Only a hint, for buffered writes.
    static_cast<void>(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED));
  }
  for (const int64_t index : written_) {
    const RecordSums& sums = *entries_[static_cast<size_t>(index)];
    MOTLEY_RETURN_IF_ERROR(write_entry(index, pack_table_entry(manifest_, index, sums)));
  }
  if (const int error = sync_data(table_.get())) {
    return disk_error(std::string(kPackTableName), error);
  }
  written_.clear();
  uncommitted_bytes_ = 0;
  return Status::ok();
}

Status PackDirectory::forget(std::span<const int64_t> indices) {
  const std::vector<std::byte> nothing(kPackEntryBytes);
  for (const int64_t index : indices) {
    entries_[static_cast<size_t>(index)].reset();
    MOTLEY_RETURN_IF_ERROR(write_entry(index, nothing));
  }
  if (indices.empty()) return Status::ok();
  if (const int error = sync_data(table_.get())) {
    return disk_error(std::string(kPackTableName), error);
  }
  return Status::ok();
}

Status PackDirectory::write_entry(int64_t index, std::span<const std::byte> bytes) {
  const int error = write_all(table_.get(), index * kPackEntryBytes, bytes);
  return error == 0 ? Status::ok() : disk_error(std::string(kPackTableName), error);
}

Status PackDirectory::disk_error(const std::string& name, int error_number) const {
  if (error_number != ENOSPC && error_number != EDQUOT) return io_error(name, error_number);
  return disk_full(path_, manifest_);
}

}  // namespace motley
