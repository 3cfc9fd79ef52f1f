#include "tests/bench/machine_peaks.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace motley {
namespace {

uint64_t read_words(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double Stopwatch::now() const {
  timespec time{};
  clock_gettime(processor_time_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double read_bandwidth_gb_per_s(ThreadPool& threads, Stopwatch watch) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int64_t kPiece = int64_t{256} << 10;
  Result<AlignedBuffer> buffer = AlignedBuffer::allocate(kBytes);
  MOTLEY_CHECK(buffer.is_ok(), "no memory for the bandwidth measurement");
  std::atomic<uint64_t> sum{0};
  double best = 0;
  for (int run = 0; run < 12; ++run) {
    watch.restart();
    threads.parallel_for(kBytes / kPiece, 1, [&](int /*worker*/, int64_t begin, int64_t end) {
      std::byte* data = buffer->data() + begin * kPiece;
      if (run == 0) std::fill(data, data + (end - begin) * kPiece, std::byte{1});
      sum += read_words(reinterpret_cast<const uint64_t*>(data),
                        static_cast<size_t>((end - begin) * kPiece) / 8);
    });
    if (run > 0) best = std::max(best, static_cast<double>(kBytes) / watch.seconds() / 1e9);
  }
  return sum.load() == 0 ? 0 : best;
}

double integer_peak_gop_per_s(ThreadPool& threads, CpuIsa isa, Stopwatch watch) {
#if defined(__x86_64__)
  if (isa != CpuIsa::kAvx512) return 0;
  std::atomic<int> checksum{0};
  double best = 0;
  for (int run = 0; run < 20; ++run) {
    std::vector<double> operations(static_cast<size_t>(threads.size()));
    watch.restart();
    threads.parallel_for(threads.size() * 8, 1, [&](int worker, int64_t begin, int64_t end) {
      const IntegerPeakRun result = integer_peak_avx512(50000 * (end - begin));
      operations[static_cast<size_t>(worker)] += result.operations;
      checksum += result.checksum;
    });
    double total = 0;
    for (const double value : operations) total += value;
    best = std::max(best, total / watch.seconds() / 1e9);
  }
  return checksum.load() == 0 ? 0 : best;
#else
  static_cast<void>(threads);
  static_cast<void>(isa);
  static_cast<void>(watch);
  return 0;
#endif
}

}  // namespace motley
