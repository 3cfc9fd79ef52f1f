#include "experts/cache/route_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/hash.h"
#include "experts/cache/little_endian.h"

namespace motley {
namespace {

constexpr std::string_view kMagic = "MTLROUTE";
constexpr uint32_t kVersion = 1;
constexpr uint16_t kDecodeMark = 0xD0DE;
constexpr uint16_t kPrefillMark = 0xF111;
constexpr int kMostLayers = 4096;
constexpr int kMostExperts = 65536;
constexpr int kMostTop = 1024;
constexpr size_t kMostName = 512;
constexpr int64_t kMostFileBytes = int64_t{4} << 30;
constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kFixedBytes = 28;  // before the name

std::vector<std::byte> header_bytes(const RouteShape& shape) {
  std::vector<std::byte> bytes;
  append_text(bytes, kMagic);
  append_little(bytes, kVersion);
  for (const int field : {shape.layers, shape.experts, shape.top}) {
    append_little(bytes, static_cast<uint32_t>(field));
  }
  append_little(bytes, static_cast<uint32_t>(shape.model.size()));
  append_text(bytes, shape.model);
  append_little(bytes, hash_bytes(bytes));
  return bytes;
}

// Ids of one layer: in range and distinct. `seen` holds, per expert, the last layer that had it.
bool are_choices(std::span<const uint16_t> ids, int experts, std::vector<int64_t>& seen,
                 int64_t mark) {
  return std::all_of(ids.begin(), ids.end(), [&](uint16_t id) {
    if (id >= experts || seen[id] == mark) return false;
    seen[id] = mark;
    return true;
  });
}

Result<size_t> parse_header(std::span<const std::byte> bytes, RouteShape& shape) {
  if (bytes.size() < kFixedBytes || text_of(bytes.first(kMagic.size())) != kMagic) {
    return corrupt("not a trace of routes (experts/cache/route_trace.h says what one is)");
  }
  const auto field = [&](size_t at) { return load_little<uint32_t>(bytes.subspan(at)); };
  if (field(8) != kVersion) {
    return unsupported(fmt::format("trace of routes: version {}, this program reads version {}",
                                   field(8), kVersion));
  }
  const auto bounded = [&](size_t at, int most) {
    return static_cast<int>(std::min<uint32_t>(field(at), static_cast<uint32_t>(most) + 1));
  };
  shape.layers = bounded(12, kMostLayers);
  shape.experts = bounded(16, kMostExperts);
  shape.top = bounded(20, kMostTop);
  const size_t name_bytes = field(24);
  if (name_bytes > kMostName || bytes.size() < kFixedBytes + name_bytes + 8) {
    return corrupt(
        fmt::format("trace of routes: the header is cut short, or its name of {} bytes "
                    "is longer than {}",
                    name_bytes, kMostName));
  }
  shape.model = text_of(bytes.subspan(kFixedBytes, name_bytes));
  const size_t hashed = kFixedBytes + name_bytes;
  if (load_little<uint64_t>(bytes.subspan(hashed)) != hash_bytes(bytes.first(hashed))) {
    return corrupt("trace of routes: the checksum of the header is wrong");
  }
  const Status status = check_route_shape(shape);
  if (!status.is_ok()) return corrupt(status.message());
  return hashed + 8;
}

}  // namespace

Status check_route_shape(const RouteShape& shape) {
  const auto within = [](int value, int most) { return value >= 1 && value <= most; };
  if (!within(shape.layers, kMostLayers) || !within(shape.experts, kMostExperts) ||
      !within(shape.top, std::min(kMostTop, shape.experts))) {
    return invalid_argument(fmt::format(
        "trace of routes: {} layers, {} experts, {} per token; possible are 1 to {}, 1 to {} and "
        "at most {} and all experts",
        shape.layers, shape.experts, shape.top, kMostLayers, kMostExperts, kMostTop));
  }
  const bool printable = std::all_of(shape.model.begin(), shape.model.end(),
                                     [](char c) { return c >= ' ' && c <= '~'; });
  if (shape.model.size() > kMostName || !printable) {
    return invalid_argument(fmt::format(
        "trace of routes: a model's name has at most {} printable ASCII characters", kMostName));
  }
  return Status::ok();
}

Result<RouteTraceWriter> RouteTraceWriter::create(FaultPoints& faults, const std::string& path,
                                                  const RouteShape& shape) {
  MOTLEY_RETURN_IF_ERROR(check_route_shape(shape));
  MOTLEY_RETURN_IF_ERROR(faults.visit("io.open").with_context(path));
  RouteTraceWriter writer;
  writer.faults_ = &faults;
  writer.path_ = path;
  writer.shape_ = shape;
  writer.descriptor_ =
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!writer.descriptor_.is_open()) return io_error(path, errno);
  writer.seen_.assign(static_cast<size_t>(shape.experts), -1);
  writer.pending_ = header_bytes(shape);
  MOTLEY_RETURN_IF_ERROR(writer.flush());
  return writer;
}

RouteTraceWriter::~RouteTraceWriter() {
  if (descriptor_.is_open()) static_cast<void>(flush());
}

Status RouteTraceWriter::append(RouteRole role, std::span<const uint16_t> ids) {
  bool fits = static_cast<int64_t>(ids.size()) == shape_.ids_per_token();
  for (int layer = 0; fits && layer < shape_.layers; ++layer) {
    const auto top = static_cast<size_t>(shape_.top);
    fits = are_choices(ids.subspan(static_cast<size_t>(layer) * top, top), shape_.experts, seen_,
                       marks_++);
  }
  if (!fits) {
    return invalid_argument(
        fmt::format("{}: a token's routes are {} ids below {}, {} distinct "
                    "ones a layer",
                    path_, shape_.ids_per_token(), shape_.experts, shape_.top));
  }
  append_little(pending_, role == RouteRole::kDecode ? kDecodeMark : kPrefillMark);
  for (const uint16_t id : ids) append_little(pending_, id);
  ++tokens_;
  return pending_.size() < kBlockBytes ? Status::ok() : flush();
}

Status RouteTraceWriter::flush() {
  MOTLEY_RETURN_IF_ERROR(faults_->visit("io.write").with_context(path_));
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t count =
        ::write(descriptor_.get(), pending_.data() + done, pending_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      // What was written of a record is continued by the next flush.
      pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
      return io_error(path_, error);
    }
    done += static_cast<size_t>(count);
  }
  pending_.clear();
  return Status::ok();
}

Result<RouteTrace> parse_route_trace(std::span<const std::byte> bytes) {
  RouteTrace trace;
  MOTLEY_ASSIGN_OR_RETURN(const size_t start, parse_header(bytes, trace.shape));
  const std::span<const std::byte> records = bytes.subspan(start);
  const auto record_bytes = static_cast<size_t>(trace.shape.record_bytes());
  const size_t tokens = records.size() / record_bytes;
  trace.cut_bytes = static_cast<int64_t>(records.size() % record_bytes);
  trace.roles.reserve(tokens);
  trace.ids.reserve(tokens * static_cast<size_t>(trace.shape.ids_per_token()));
  std::vector<int64_t> seen(static_cast<size_t>(trace.shape.experts), -1);
  for (size_t token = 0; token < tokens; ++token) {
    const std::span<const std::byte> record = records.subspan(token * record_bytes, record_bytes);
    const auto mark = load_little<uint16_t>(record);
    if (mark != kDecodeMark && mark != kPrefillMark) {
      return corrupt(
          fmt::format("trace of routes: token {} has the unknown role {:#06x}", token, mark));
    }
    trace.roles.push_back(mark == kDecodeMark ? RouteRole::kDecode : RouteRole::kPrefill);
    for (size_t at = 2; at < record_bytes; at += 2) {
      trace.ids.push_back(load_little<uint16_t>(record.subspan(at)));
    }
    for (int layer = 0; layer < trace.shape.layers; ++layer) {
      const int64_t place = static_cast<int64_t>(token) * trace.shape.layers + layer;
      if (are_choices(trace.of(static_cast<int64_t>(token), layer), trace.shape.experts, seen,
                      place)) {
        continue;
      }
      return corrupt(
          fmt::format("trace of routes: token {}, layer {}: an expert twice, or none of "
                      "the {}",
                      token, layer, trace.shape.experts));
    }
  }
  return trace;
}

Result<RouteTrace> read_route_trace(FaultPoints& faults, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(faults, path));
  if (file.size() > kMostFileBytes) {
    return resource_exhausted(fmt::format("{}: {} bytes, a trace of at most {} can be read", path,
                                          file.size(), kMostFileBytes));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  MOTLEY_RETURN_IF_ERROR(file.read_exact(0, bytes));
  Result<RouteTrace> trace = parse_route_trace(bytes);
  if (!trace.is_ok()) return trace.status().with_context(path);
  return trace;
}

}  // namespace motley
