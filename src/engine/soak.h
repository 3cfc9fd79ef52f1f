// Random requests for as long as asked, with what the process holds sampled on the way: does
// memory, or the number of open descriptors or threads, grow when nothing should?
//
// Requests have random prompts and lengths, several at a time; some are greedy, some sampled, some
// continue their sequence, some are cancelled on the way; the first ones are as long as any can be.
// What the first half of the time needed at most is the base: the second half may need no more than
// that and `allowed_growth_bytes`.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/system_memory.h"
#include "engine/engine.h"

namespace motley {

struct SoakOptions {
  double seconds = 60;
  int64_t max_prompt_tokens = 512;
  int64_t max_new_tokens = 64;
  int requests_at_once = 2;
  int64_t prefill_chunk = 512;
  uint64_t seed = 1;
  int samples = 60;                           // taken, evenly in time
  int64_t allowed_growth_bytes = 16ll << 20;  // stacks, pages of the allocator
  std::function<bool()> is_interrupted;       // ends the run early; may be empty
  std::function<void(const std::string& stage)> progress;
};

struct SoakSample {
  double at_s = 0;
  int64_t requests = 0;  // ended so far
  int64_t tokens = 0;    // prefilled and generated so far
  ProcessMemory memory;
  ProcessHandles handles;
};

struct SoakReport {
  std::vector<SoakSample> samples;
  int64_t cancelled = 0;
  int64_t failed = 0;
  std::string first_failure;
  int64_t allowed_growth_bytes = 0;

  // Of the most that a sample of the second half shows over the most of the first half.
  int64_t growth_bytes() const;
  int64_t descriptor_growth() const;
  int64_t thread_growth() const;
  bool passed() const;
  std::string table() const;
};

// kInvalidArgument when a request may exceed the context or the numbers are out of range.
Result<SoakReport> soak(Engine& engine, const SoakOptions& options);

}  // namespace motley
