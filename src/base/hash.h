// Content hashes (xxHash 3). Not for secrets; model identity uses SHA-256 elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace motley {

uint64_t hash_bytes(std::span<const std::byte> bytes);
uint64_t hash_bytes(std::string_view text);

}  // namespace motley
