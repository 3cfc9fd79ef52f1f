// The keys and values at the head of a GGUF file, and typed access to them.
//
// Numbers keep their kind but not their width: unsigned, signed and floating-point. Arrays are of
// numbers or of texts; arrays of arrays do not occur in models and are refused by the reader
// (io/gguf.h), which also has the limits. Source: ggml docs/gguf.md.
// Ownership: values. Thread rule: immutable after reading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace motley {

using GgufValue = std::variant<bool, uint64_t, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class GgufMetadata {
 public:
  void add(std::string key, GgufValue value);
  // Puts keys in order, once all are added; find() needs it. kCorrupt when one appears twice.
  Status sort();

  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }

  // kNotFound when the key is absent, kInvalidArgument for another type or a value out of range.
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<double> number(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  Result<const std::vector<std::string>*> texts(std::string_view key) const;
  Result<const std::vector<int64_t>*> integers(std::string_view key) const;

  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min,
                             int64_t max) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;

 private:
  std::vector<std::pair<std::string, GgufValue>> entries_;
};

}  // namespace motley
