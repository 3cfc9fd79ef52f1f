// Times the matrix products on the shapes of a real model and sets them against what the machine
// can do: memory bandwidth for decode, the multiply instruction's own rate for prefill.
//
//   linear_bench [--isa NAME] [--profile exact|fast] [--threads N] [--seconds S]
//                [--formats mlx4,nvfp4,...] [--case qkv|z|out|head|experts] [--rows N]
// Formats: mlx2 to mlx8, fp8, nvfp4, mxfp4; their cases take turns, and the last column is the time
// of the first format over theirs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/owned_context.h"
#include "ops/cpu/peak_rates.h"
#include "tests/bench/linear_bench_cases.h"

namespace motley {
namespace {

constexpr int64_t kReadBytes = int64_t{1} << 30;

struct BenchOptions {
  std::string isa;
  NumericProfile profile = NumericProfile::kFast;
  int threads = 0;
  std::string formats = "mlx4";
  double seconds = 1.0;
  std::string filter;
  int64_t rows = 0;  // only cases of so many
};

bool parse(int argc, char** argv, BenchOptions* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--isa") {
      options->isa = value;
    } else if (name == "--profile") {
      options->profile = value == "exact" ? NumericProfile::kExact : NumericProfile::kFast;
    } else if (name == "--threads") {
      options->threads = std::atoi(value.c_str());
    } else if (name == "--formats") {
      options->formats = value;
    } else if (name == "--seconds") {
      options->seconds = std::atof(value.c_str());
    } else if (name == "--rows") {
      options->rows = std::atoi(value.c_str());
    } else if (name == "--case") {
      options->filter = value;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

// The best of as many calls as fit: other work on the machine only ever slows a call down. The
// benches take turns, so that it slows all of them.
std::vector<double> best_seconds(const std::vector<const BenchCase*>& benches, Stream& stream,
                                 double budget_seconds) {
  const Clock& clock = stream.context().clock;
  std::vector<double> best(benches.size(), 1e30);
  double total = 0;
  const double budget = budget_seconds * static_cast<double>(benches.size());
  for (int calls = 0; calls < 3 || total < budget; ++calls) {
    for (size_t i = 0; i < benches.size(); ++i) {
      const int64_t start_ns = clock.now_ns();
      benches[i]->run(stream);
      const double seconds = seconds_since(clock, start_ns);
      best[i] = std::min(best[i], seconds);
      total += seconds;
    }
  }
  return best;
}

struct NamedCases {
  std::string name;
  std::vector<BenchCase> cases;
};

// The cases of every format, in the same order; empty when a name is unknown.
std::vector<NamedCases> cases_of_formats(const BenchOptions& options, CpuIsa isa) {
  std::vector<NamedCases> result;
  size_t begin = 0;
  while (begin <= options.formats.size()) {
    const size_t end = std::min(options.formats.find(',', begin), options.formats.size());
    const std::string name = options.formats.substr(begin, end - begin);
    WeightMatrix format;
    if (!parse_bench_format(name, &format)) {
      fmt::print(stderr, "linear_bench: format '{}' is unknown\n", name);
      return {};
    }
    result.push_back({name, linear_bench_cases(isa, options.profile, format, options.filter)});
    begin = end + 1;
  }
  return result;
}

// 10^9 multiplications and additions of bytes per second; 0 when the instruction set has none.
double integer_peak_gop_per_s(CpuIsa isa, const Context& context) {
  double best = 0;
  for (const PeakRate& rate : measure_peak_rates(isa, context.threads, context.clock)) {
    if (rate.numbers == "int8") best = std::max(best, 2e-9 * rate.multiply_adds_per_s);
  }
  return best;
}

int run(const BenchOptions& options) {
  const Result<CpuIsa> isa = choose_cpu_isa(options.isa);
  if (!isa.is_ok()) {
    fmt::print(stderr, "linear_bench: {}\n", isa.status().message());
    return 1;
  }
  OwnedContext context({options.threads, true});
  HostStream stream(context.get());
  const Result<double> read =
      measure_read_bytes_per_s(kReadBytes, stream.threads(), stream.context().clock);
  if (!read.is_ok()) {
    fmt::print(stderr, "linear_bench: {}\n", read.status().message());
    return 1;
  }
  const double bandwidth = *read / 1e9;
  const double peak = integer_peak_gop_per_s(*isa, stream.context());
  const MatrixArithmetic arithmetic = matrix_arithmetic(options.profile);
  const std::vector<NamedCases> formats = cases_of_formats(options, *isa);
  if (formats.empty()) return 2;
  fmt::print("{} {} {} threads: read {:.1f} GB/s, integer peak {:.0f} GOP/s\n", cpu_isa_name(*isa),
             numeric_profile_name(options.profile), stream.threads().size(), bandwidth, peak);
  fmt::print("{:<8} {:<6} {:>5} {:>10} {:>8} {:>7} {:>9} {:>7} {:>6}\n", "case", "format", "rows",
             "us", "GB/s", "% read", "GOP/s", "% peak", "speed");
  for (size_t i = 0; i < formats[0].cases.size(); ++i) {
    std::vector<const BenchCase*> benches;
    for (const NamedCases& format : formats) benches.push_back(&format.cases[i]);
    const int64_t rows = benches[0]->decode_rows + benches[0]->prefill_rows;
    if (options.rows > 0 && rows != options.rows) continue;
    const std::vector<double> seconds = best_seconds(benches, stream, options.seconds);
    for (size_t f = 0; f < formats.size(); ++f) {
      const BenchCase& bench = *benches[f];
      const double gb_per_s = bench.weight_bytes / seconds[f] / 1e9;
      const double gop_per_s = bench.operations / seconds[f] / 1e9;
      const int limbs = bench.prefill_rows > 0 ? arithmetic.prefill.limbs : arithmetic.decode.limbs;
      fmt::print("{:<8} {:<6} {:>5} {:>10.1f} {:>8.1f} {:>7.0f} {:>9.0f} {:>7.0f} {:>6.2f}\n",
                 bench.name, formats[f].name, rows, seconds[f] * 1e6, gb_per_s,
                 100 * gb_per_s / bandwidth, gop_per_s,
                 peak == 0 ? 0.0 : 100 * gop_per_s * limbs / peak, seconds[0] / seconds[f]);
    }
  }
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  motley::BenchOptions options;
  if (!motley::parse(argc, argv, &options)) {
    fmt::print(stderr, "linear_bench: see the head of tests/bench/linear_bench.cpp for options\n");
    return 2;
  }
  return motley::run(options);
}
