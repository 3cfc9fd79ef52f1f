// A clear end when a mapped file is truncated by someone else.
//
// Reading a page beyond the new end of a mapped file raises SIGBUS. One process-wide handler looks
// up the address among the registered mappings, prints one line that names the file, and exits
// with status 1; any other SIGBUS goes to whoever handled it before. The table is the only global
// state of io/ (a signal handler can reach nothing else); it is fixed and lock-free.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.h"

namespace motley {

// Registration of one mapping, for as long as it lives.
class SigbusGuard {
 public:
  SigbusGuard() = default;
  // kResourceExhausted when the table is full (kMaxMappings).
  static Result<SigbusGuard> watch(std::span<const std::byte> mapping, std::string_view file);
  SigbusGuard(SigbusGuard&& other) noexcept;
  SigbusGuard& operator=(SigbusGuard&& other) noexcept;
  ~SigbusGuard() { release(); }

  static constexpr int kMaxMappings = 2048;

 private:
  void release();
  int slot_ = -1;
};

}  // namespace motley
