// What this machine can reach at best: bytes a second from memory, multiply-adds a second in the
// units that the kernels use. Benchmarks state their results as shares of these.
//
// Thread rule: uses the given pool; nothing else may run on it meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {

struct PeakRate {
  std::string instruction;
  std::string numbers;  // "float32", "int8", "bfloat16"
  double multiply_adds_per_s = 0;
};

// Every unit that the kernels of `isa` use, on all threads of the pool; best of three. `isa` must
// be available, and for kAmx the pool must have been started after available_cpu_isas().
std::vector<PeakRate> measure_peak_rates(CpuIsa isa, ThreadPool& threads, const Clock& clock);

// Sequential reads of a buffer in memory, in passes that may be spread over other work.
class ReadTest {
 public:
  // `bytes` should be several times the last cache. kResourceExhausted when they cannot be had.
  static Result<ReadTest> create(int64_t bytes, ThreadPool& threads);

  // Reads the buffer once on all threads; seconds that it took.
  double pass_seconds(ThreadPool& threads, const Clock& clock) const;
  int64_t bytes() const;

 private:
  explicit ReadTest(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}

  AlignedBuffer buffer_;
};

// Bytes a second of sequential reads on all threads of the pool, over `bytes` bytes, which should
// be several times the last cache; best of three. kResourceExhausted when they cannot be had.
Result<double> measure_read_bytes_per_s(int64_t bytes, ThreadPool& threads, const Clock& clock);

// Four times the last cache and at least 1 GiB, but at most a quarter of `available_bytes`.
int64_t read_test_bytes(int64_t available_bytes);

}  // namespace motley
