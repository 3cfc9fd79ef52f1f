#include "ops/cpu/peak_rates.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/aligned_buffer.h"
#include "ops/cpu/peak_kernels.h"

namespace motley {
namespace {

constexpr int kAttempts = 3;
constexpr int kPiecesPerThread = 8;
constexpr double kPieceSeconds = 0.004;
constexpr int64_t kReadPiece = int64_t{4} << 20;

PeakKernels kernels_of(CpuIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return peak_kernels_avx2();
    case CpuIsa::kAvx512:
      return peak_kernels_avx512();
    case CpuIsa::kAmx:
      return peak_kernels_amx();
#elif defined(__aarch64__)
    case CpuIsa::kNeon:
      return peak_kernels_neon();
#endif
    default:
      return peak_kernels_portable();
  }
}

// Keeps results alive across threads.
class Sink {
 public:
  void add(float value) { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<float> value_{0};
};

// Rounds that take about kPieceSeconds on one thread.
int64_t rounds_per_piece(const PeakKernel& kernel, const Clock& clock, Sink* sink) {
  int64_t rounds = 1024;
  for (;;) {
    const int64_t start_ns = clock.now_ns();
    sink->add(kernel.run(rounds));
    const double seconds = seconds_since(clock, start_ns);
    if (seconds >= kPieceSeconds || rounds >= int64_t{1} << 40) return rounds;
    rounds *= 2;
  }
}

PeakRate measure(const PeakKernel& kernel, ThreadPool& threads, const Clock& clock) {
  Sink sink;
  const int64_t rounds = rounds_per_piece(kernel, clock, &sink);
  const int64_t pieces = int64_t{kPiecesPerThread} * threads.size();
  PeakRate rate{kernel.instruction, kernel.numbers, 0};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int64_t start_ns = clock.now_ns();
    threads.parallel_for(pieces, 1, [&](int, int64_t begin, int64_t end) {
      sink.add(kernel.run(rounds * (end - begin)));
    });
    const double seconds = seconds_since(clock, start_ns);
    const auto products = static_cast<double>(pieces * rounds * kernel.multiply_adds);
    if (seconds > 0) {
      rate.multiply_adds_per_s = std::max(rate.multiply_adds_per_s, products / seconds);
    }
  }
  return rate;
}

uint64_t sum_of(const std::byte* data, int64_t bytes) {
  typedef uint64_t Lanes __attribute__((vector_size(32), may_alias));
  constexpr int kChains = 8;
  Lanes sums[kChains] = {};
  constexpr int64_t kStride = kChains * static_cast<int64_t>(sizeof(Lanes));
  for (int64_t at = 0; at + kStride <= bytes; at += kStride) {
    const auto* lanes = reinterpret_cast<const Lanes*>(data + at);  // pages are aligned
    for (int chain = 0; chain < kChains; ++chain) sums[chain] += lanes[chain];
  }
  uint64_t total = 0;
  for (const Lanes& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
  return total;
}

}  // namespace

std::vector<PeakRate> measure_peak_rates(CpuIsa isa, ThreadPool& threads, const Clock& clock) {
  std::vector<PeakRate> rates;
  const auto add_all = [&](const PeakKernels& kernels) {
    for (const PeakKernel& kernel : kernels.kernels) {
      if (kernel.run != nullptr) rates.push_back(measure(kernel, threads, clock));
    }
  };
  // AMX machines compute float32 with AVX-512.
  if (isa == CpuIsa::kAmx) add_all(kernels_of(CpuIsa::kAvx512));
  add_all(kernels_of(isa));
  return rates;
}

int64_t read_test_bytes(int64_t available_bytes) {
  const int64_t last_cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  const int64_t wanted = std::max<int64_t>(int64_t{1} << 30, 4 * last_cache);
  return std::max(std::min(wanted, available_bytes / 4), 4 * kReadPiece);
}

Result<ReadTest> ReadTest::create(int64_t bytes, ThreadPool& threads) {
  const int64_t pieces = std::max<int64_t>(bytes / kReadPiece, 1);
  MOTLEY_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                          AlignedBuffer::allocate(static_cast<size_t>(pieces * kReadPiece)));
  // Written first: pages that were never written all read the same page of zeros.
  threads.parallel_for(pieces, 1, [&](int, int64_t begin, int64_t end) {
    std::memset(buffer.data() + begin * kReadPiece, 1,
                static_cast<size_t>((end - begin) * kReadPiece));
  });
  return ReadTest(std::move(buffer));
}

int64_t ReadTest::bytes() const {
  return static_cast<int64_t>(buffer_.size());
}

double ReadTest::pass_seconds(ThreadPool& threads, const Clock& clock) const {
  Sink sink;
  const int64_t start_ns = clock.now_ns();
  threads.parallel_for(bytes() / kReadPiece, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      sink.add(static_cast<float>(sum_of(buffer_.data() + piece * kReadPiece, kReadPiece)));
    }
  });
  return seconds_since(clock, start_ns);
}

Result<double> measure_read_bytes_per_s(int64_t bytes, ThreadPool& threads, const Clock& clock) {
  MOTLEY_ASSIGN_OR_RETURN(const ReadTest test, ReadTest::create(bytes, threads));
  double best = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double seconds = test.pass_seconds(threads, clock);
    if (seconds > 0) best = std::max(best, static_cast<double>(test.bytes()) / seconds);
  }
  return best;
}

}  // namespace motley
