// Limits of the chat template sandbox. A template comes with a checkpoint and is hostile input:
// each limit is refused with one line, never with a crash or a slow machine.
//
// Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley {

struct JinjaLimits {
  // Template text. The largest real one is under 32 KiB.
  std::size_t max_source_bytes = std::size_t{1} << 20;
  // Nesting of blocks and expressions in the source, and of lists and dicts in values.
  int max_nesting = 200;
  // Nesting of evaluation over all macro calls together; bounds the stack.
  int max_evaluation_depth = 2'000;
  int max_call_depth = 100;
  // One step is an evaluated node, a visited item or 64 bytes of text work.
  std::int64_t max_steps = 10'000'000;
  std::size_t max_output_bytes = std::size_t{8} << 20;
  std::size_t max_string_bytes = std::size_t{16} << 20;
  // All values made during one rendering together; nothing is freed before it ends.
  std::size_t max_value_bytes = std::size_t{256} << 20;
  std::int64_t max_range_items = 100'000;
};

}  // namespace motley
