#include "experts/cache/heat_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/hash.h"
#include "experts/cache/little_endian.h"
#include "io/file.h"
#include "io/file_writer.h"

namespace motley {
namespace {

constexpr std::string_view kMagic = "MTLEHEAT";
constexpr uint32_t kVersion = 1;
constexpr int64_t kMostExperts = int64_t{1} << 24;  // of all layers together
constexpr size_t kMostName = 512;
constexpr size_t kFixedBytes = 32;  // before the name
constexpr size_t kSealBytes = 8;
constexpr int64_t kMostFileBytes = 4 * kMostExperts + 1024;

Status check_table(const HeatTable& heat) {
  const bool printable = std::all_of(heat.model.begin(), heat.model.end(),
                                     [](char c) { return c >= ' ' && c <= '~'; });
  if (heat.layers < 1 || heat.experts < 1 || int64_t{heat.layers} * heat.experts > kMostExperts ||
      heat.model.size() > kMostName || !printable) {
    return invalid_argument(
        fmt::format("expert heat: {} layers, {} experts and a name of {} bytes; possible are {} "
                    "experts in all and {} printable ASCII characters",
                    heat.layers, heat.experts, heat.model.size(), kMostExperts, kMostName));
  }
  const auto count = static_cast<size_t>(heat.layers) * static_cast<size_t>(heat.experts);
  const bool rates = std::all_of(heat.uses_per_step.begin(), heat.uses_per_step.end(),
                                 [](float rate) { return rate >= 0 && rate <= 1; });
  if (heat.uses_per_step.size() != count || !rates) {
    return invalid_argument("expert heat: needs one value of 0 to 1 for every expert");
  }
  return Status::ok();
}

}  // namespace

std::vector<CachedExpert> HeatTable::hottest(size_t count) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < uses_per_step.size(); ++i) {
    if (uses_per_step[i] > 0) order.push_back(i);
  }
  count = std::min(count, order.size());
  const auto hotter = [&](size_t a, size_t b) {
    return uses_per_step[a] != uses_per_step[b] ? uses_per_step[a] > uses_per_step[b] : a < b;
  };
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), middle, order.end(), hotter);
  std::vector<CachedExpert> chosen;
  for (auto it = order.begin(); it != middle; ++it) {
    const auto per_layer = static_cast<size_t>(experts);
    chosen.push_back(
        {static_cast<int32_t>(*it / per_layer), static_cast<int32_t>(*it % per_layer)});
  }
  return chosen;
}

Status check_heat_is_of(const HeatTable& heat, int layers, int experts, uint64_t identity) {
  if (heat.layers == layers && heat.experts == experts && heat.identity == identity) {
    return Status::ok();
  }
  return invalid_argument(fmt::format(
      "expert heat: is of another model ({}: {} layers of {} experts, identity {:016x}), needed "
      "are {} layers of {} experts, identity {:016x}",
      heat.model, heat.layers, heat.experts, heat.identity, layers, experts, identity));
}

Status save_heat(FaultPoints& faults, const std::string& path, const HeatTable& heat) {
  MOTLEY_RETURN_IF_ERROR(check_table(heat));
  std::vector<std::byte> bytes;
  append_text(bytes, kMagic);
  append_little(bytes, kVersion);
  append_little(bytes, static_cast<uint32_t>(heat.layers));
  append_little(bytes, static_cast<uint32_t>(heat.experts));
  append_little(bytes, static_cast<uint32_t>(heat.model.size()));
  append_little(bytes, heat.identity);
  append_text(bytes, heat.model);
  for (const float rate : heat.uses_per_step) append_little(bytes, std::bit_cast<uint32_t>(rate));
  append_little(bytes, hash_bytes(bytes));
  return write_file(faults, path, bytes);
}

Result<HeatTable> parse_heat(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes + kSealBytes || text_of(bytes.first(kMagic.size())) != kMagic) {
    return corrupt("expert heat: not such a file; delete it to start cold");
  }
  const auto field = [&](size_t at) { return load_little<uint32_t>(bytes.subspan(at)); };
  if (field(8) != kVersion) {
    return unsupported(
        fmt::format("expert heat: version {}, this program reads version {}", field(8), kVersion));
  }
  const uint64_t layers = field(12);
  const uint64_t experts = field(16);
  const uint64_t name_bytes = field(20);
  const bool possible = layers >= 1 && experts >= 1 && name_bytes <= kMostName &&
                        layers * experts <= static_cast<uint64_t>(kMostExperts);
  if (!possible || bytes.size() != kFixedBytes + name_bytes + 4 * layers * experts + kSealBytes) {
    return corrupt(
        fmt::format("expert heat: {} bytes are not the size of {} layers of {} experts; "
                    "delete the file to start cold",
                    bytes.size(), layers, experts));
  }
  const size_t sealed = bytes.size() - kSealBytes;
  if (load_little<uint64_t>(bytes.subspan(sealed)) != hash_bytes(bytes.first(sealed))) {
    return corrupt("expert heat: the checksum is wrong; delete the file to start cold");
  }
  HeatTable heat;
  heat.layers = static_cast<int>(layers);
  heat.experts = static_cast<int>(experts);
  heat.identity = load_little<uint64_t>(bytes.subspan(24));
  heat.model = text_of(bytes.subspan(kFixedBytes, name_bytes));
  heat.uses_per_step.reserve(layers * experts);
  for (size_t at = kFixedBytes + name_bytes; at < sealed; at += 4) {
    heat.uses_per_step.push_back(std::bit_cast<float>(field(at)));
  }
  const Status status = check_table(heat);
  if (!status.is_ok()) return corrupt(status.message());
  return heat;
}

Result<HeatTable> load_heat(FaultPoints& faults, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(faults, path));
  if (file.size() > kMostFileBytes) {
    return corrupt(
        fmt::format("{}: {} bytes are too many for a file of expert heat", path, file.size()));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  MOTLEY_RETURN_IF_ERROR(file.read_exact(0, bytes));
  Result<HeatTable> heat = parse_heat(bytes);
  if (!heat.is_ok()) return heat.status().with_context(path);
  return heat;
}

}  // namespace motley
