// A trace of routes: whatever is accepted can be replayed and has the size that it says.
#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "experts/cache/little_endian.h"
#include "experts/cache/route_trace.h"

namespace {

void check(std::span<const std::byte> bytes) {
  const auto trace = motley::parse_route_trace(bytes);
  if (!trace.is_ok()) {
    if (trace.status().message().find('\n') != std::string::npos) std::abort();
    return;
  }
  const motley::RouteShape& shape = trace->shape;
  if (!motley::check_route_shape(shape).is_ok()) std::abort();
  const auto ids = static_cast<int64_t>(trace->ids.size());
  if (ids != trace->tokens() * shape.ids_per_token()) std::abort();
  if (trace->cut_bytes < 0 || trace->cut_bytes >= shape.record_bytes()) std::abort();
  for (const uint16_t id : trace->ids) {
    if (id >= shape.experts) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  // The same with a header whose checksum is right, which no fuzzer would find.
  constexpr size_t kFixed = 28;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  if (size < kFixed + 8) return 0;
  std::memcpy(sealed.data(), "MTLROUTE\1\0\0", 12);
  const size_t name = std::to_integer<size_t>(sealed[24]) % (size - kFixed - 7);
  for (size_t i = 0; i < 4; ++i) sealed[24 + i] = static_cast<std::byte>(name >> (8 * i) & 0xFF);
  std::vector<std::byte> seal;
  motley::append_little(seal, motley::hash_bytes(std::span(sealed).first(kFixed + name)));
  std::memcpy(sealed.data() + kFixed + name, seal.data(), seal.size());
  check(sealed);
  return 0;
}
