// motley-ops-test: every op of a backend on random shapes against the float64 reference.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/owned_context.h"
#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

struct Options {
  std::string backend = "cpu";
  std::string only;
  std::string bench_only;
  uint64_t seed = 1;
  int cases = 6;
  double matrix_tflops = 0;
  bool bench = false;
  bool check = true;
};

constexpr const char* kUsage =
    "usage: motley-ops-test [--backend cpu|cuda] [--only GROUP|GROUP..]\n"
    "                       [--cases N] [--seed S] [--bench] [--bench-only TEXT|TEXT..]\n"
    "                       [--matrix-tflops R] [--no-check]\n"
    "groups: norm, linear, attention, moe, delta, channel, hyper, latent, index\n";

bool parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (flag == "--bench") {
      options->bench = true;
    } else if (flag == "--no-check") {
      options->check = false;
    } else if (value == nullptr) {
      return false;
    } else {
      ++i;
      if (flag == "--backend") {
        options->backend = value;
      } else if (flag == "--only") {
        options->only = value;
      } else if (flag == "--seed") {
        options->seed = std::strtoull(value, nullptr, 10);
      } else if (flag == "--bench-only") {
        options->bench = true;
        options->bench_only = value;
      } else if (flag == "--matrix-tflops") {
        options->matrix_tflops = std::atof(value);
      } else if (flag == "--cases") {
        options->cases = std::atoi(value);
      } else {
        return false;
      }
    }
  }
  return true;
}

bool run_checks(Harness& harness, const Options& options) {
  const std::pair<std::string_view, void (*)(Harness&, int)> groups[] = {
      {"norm", run_norm_cases},   {"linear", run_linear_cases}, {"attention", run_attention_cases},
      {"moe", run_moe_cases},     {"delta", run_delta_cases},   {"channel", run_channel_cases},
      {"hyper", run_hyper_cases}, {"latent", run_latent_cases}, {"index", run_index_cases},
  };
  const std::string listed = "|" + options.only + "|";
  for (const auto& [name, run_cases] : groups) {
    const bool wanted = listed.find("|" + std::string(name) + "|") != std::string::npos;
    if (options.only.empty() || wanted) run_cases(harness, options.cases);
  }
  std::printf("%-28s %-26s %5s %12s %12s  %s\n", "op", "shapes", "cases", "worst error",
              "error/limit", "result");
  bool passed = true;
  for (const Line& line : harness.lines()) {
    passed = passed && line.passed;
    std::printf("%-28s %-26s %5d %12.3e %12.4f  %s\n", line.op.c_str(), line.shapes.c_str(),
                line.cases, line.worst_error, line.worst_share, line.passed ? "pass" : "FAIL");
  }
  return passed;
}

int run(const Options& options) {
  OwnedContext context;
  HostStream host(context.get());
  Result<std::unique_ptr<Backend>> backend = options.backend == "cuda"
                                                 ? make_cuda_backend(context.get())
                                                 : make_cpu_backend(context.get());
  if (!backend.is_ok()) {
    std::fprintf(stderr, "motley-ops-test: %s\n", backend.status().message().c_str());
    return 1;
  }
  std::printf("backend %s, seed %llu\n", backend.value()->description().c_str(),
              static_cast<unsigned long long>(options.seed));
  Harness harness(*backend.value(), host, options.seed);
  bool passed = !options.check || run_checks(harness, options);
  if (options.bench) {
    run_benchmarks(*backend.value(), 1e12 * options.matrix_tflops, options.bench_only);
  }
  const Status status = backend.value()->status();
  if (!status.is_ok()) std::printf("backend error: %s\n", status.message().c_str());
  passed = passed && status.is_ok();
  std::printf("%s\n", passed ? "passed" : "FAILED");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace motley::ops_device

int main(int argc, char** argv) {
  motley::ops_device::Options options;
  if (!motley::ops_device::parse(argc, argv, &options)) {
    std::fputs(motley::ops_device::kUsage, stderr);
    return 2;
  }
  return motley::ops_device::run(options);
}
