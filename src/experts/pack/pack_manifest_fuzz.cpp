// The manifest and the table of a pack: the text up to a zero byte, then the table.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "experts/pack/pack_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace motley;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto manifest = parse_pack_manifest(input.substr(0, end), "fuzz");
  if (!manifest.is_ok()) return 0;
  const auto again = parse_pack_manifest(format_pack_manifest(*manifest), "again");
  MOTLEY_CHECK(again.is_ok() && *again == *manifest, "a manifest that does not come back");
  const std::string_view table = end == std::string_view::npos ? "" : input.substr(end + 1);
  const auto entries = parse_pack_table(*manifest, std::as_bytes(std::span(table)));
  MOTLEY_CHECK(static_cast<int64_t>(entries.size()) == manifest->records(), "a record lost");
  for (size_t i = 0; i < manifest->layers.size(); ++i) {
    const PackLayer& layer = manifest->layers[i];
    for (int64_t at = 0; at < manifest->records_of(i); ++at) {
      const int expert = expert_at(manifest->parts, manifest->part, layer.layer, at);
      MOTLEY_CHECK(expert >= 0 && expert < layer.experts &&
                       part_of_expert(manifest->parts, layer.layer, expert) == manifest->part &&
                       position_in_part(manifest->parts, expert) == at,
                   "an expert at two places");
    }
  }
  return 0;
}
