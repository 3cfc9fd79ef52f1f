// Fields of the small binary files of this folder: little endian on every machine.
// REQUIRES: enough bytes; readers check sizes before. Thread rule: free functions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

template <std::unsigned_integral T>
void append_little(std::vector<std::byte>& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i) & 0xFF));
  }
}

inline void append_text(std::vector<std::byte>& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

template <std::unsigned_integral T>
T load_little(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return static_cast<T>(value);
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace motley
