// What this machine can do at best, measured in the same run as the kernels it judges.
#pragma once

#include "base/thread_pool.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {

// Wall time, or for a machine that others use too the processor time of all threads divided by
// their number, which leaves out the time that others had.
class Stopwatch {
 public:
  Stopwatch(bool processor_time, int threads) : processor_time_(processor_time), threads_(threads) {
    restart();
  }
  void restart() { start_ = now(); }
  double seconds() const { return (now() - start_) / (processor_time_ ? threads_ : 1); }

 private:
  double now() const;
  bool processor_time_;
  int threads_;
  double start_ = 0;
};

// GB/s of all threads reading memory that is in no cache.
double read_bandwidth_gb_per_s(ThreadPool& threads, Stopwatch watch);

// 10^9 integer multiplications and additions (two per product) per second of all threads: the
// instruction that `isa` multiplies bytes with, on independent accumulators. 0: not measured.
double integer_peak_gop_per_s(ThreadPool& threads, CpuIsa isa, Stopwatch watch);

struct IntegerPeakRun {
  double operations = 0;
  int checksum = 0;  // keeps the work from being optimised away
};
IntegerPeakRun integer_peak_avx512(int64_t iterations);

}  // namespace motley
