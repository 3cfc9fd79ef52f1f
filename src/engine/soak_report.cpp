// What a soak found in words; declared in soak.h.
#include <fmt/format.h>

#include <algorithm>

#include "engine/soak.h"

namespace motley {
namespace {

// The most that the second half shows over the most of the first half.
template <typename Value>
int64_t growth(const std::vector<SoakSample>& samples, Value value) {
  if (samples.size() < 2) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  const auto less = [&](const SoakSample& a, const SoakSample& b) { return value(a) < value(b); };
  return value(*std::max_element(middle, samples.end(), less)) -
         value(*std::max_element(samples.begin(), middle, less));
}

int64_t resident(const SoakSample& sample) {
  return static_cast<int64_t>(sample.memory.resident_bytes);
}

// About ten lines of many samples, the last always.
size_t step_of(size_t samples) {
  return std::max<size_t>(1, samples / 10);
}

}  // namespace

int64_t SoakReport::growth_bytes() const {
  return growth(samples, resident);
}
int64_t SoakReport::descriptor_growth() const {
  return growth(samples, [](const SoakSample& sample) { return sample.handles.descriptors; });
}
int64_t SoakReport::thread_growth() const {
  return growth(samples, [](const SoakSample& sample) { return sample.handles.threads; });
}

bool SoakReport::passed() const {
  return failed == 0 && growth_bytes() <= allowed_growth_bytes && descriptor_growth() <= 0 &&
         thread_growth() <= 0;
}

std::string SoakReport::table() const {
  std::string text = fmt::format("{:>8}  {:>9}  {:>10}  {:>12}  {:>11}  {:>7}\n", "seconds",
                                 "requests", "tokens", "resident MB", "descriptors", "threads");
  const size_t step = step_of(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i % step != 0 && i + 1 != samples.size()) continue;
    const SoakSample& sample = samples[i];
    text += fmt::format("{:>8.0f}  {:>9}  {:>10}  {:>12.1f}  {:>11}  {:>7}\n", sample.at_s,
                        sample.requests, sample.tokens,
                        static_cast<double>(sample.memory.resident_bytes) * 1e-6,
                        sample.handles.descriptors, sample.handles.threads);
  }
  text += fmt::format(
      "growth in the second half: {:+.1f} MB of {:.1f} allowed, {:+} descriptors, {:+} threads; {} "
      "cancelled, {} failed: {}\n",
      static_cast<double>(growth_bytes()) * 1e-6, static_cast<double>(allowed_growth_bytes) * 1e-6,
      descriptor_growth(), thread_growth(), cancelled, failed, passed() ? "passed" : "FAILED");
  if (failed > 0) text += "first failure: " + first_failure + "\n";
  return text;
}

}  // namespace motley
