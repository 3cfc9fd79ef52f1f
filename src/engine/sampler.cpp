#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "engine/token_candidates.h"

namespace motley {
namespace {

// log sum exp of all logits, in float64.
double log_normaliser(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

// SplitMix64, a bijective mixer.
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// One for each draw; a token's noise follows from it and the token's id.
uint64_t noise_key(uint64_t seed, uint64_t position) {
  return mix(mix(seed) ^ position);
}

uint64_t noise_bits(uint64_t key, int32_t token) {
  return mix(key ^ static_cast<uint64_t>(token));
}

// -log(-log u) for the middle u of one of 2^52 intervals: never 0 or 1.
double noise_of(uint64_t bits) {
  const double uniform = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  return -std::log(-std::log(uniform));
}

// No less than noise_of(), and quick: with m of 2^52 intervals from u's own upwards,
// -log u >= 1 - u >= m / 2^53.
double most_noise_of(uint64_t bits) {
  const uint64_t intervals = (uint64_t{1} << 52) - (bits >> 12);
  return (54 - static_cast<int>(std::bit_width(intervals))) * std::numbers::ln2 + 1e-9;
}

// The token with the highest score, which is its scaled logit plus its noise.
class GumbelRace {
 public:
  explicit GumbelRace(uint64_t key) : key_(key) {}

  void enter(int32_t token, double scaled_logit) {
    if (!(scaled_logit + kMostNoise >= highest_)) return;
    const uint64_t bits = noise_bits(key_, token);
    if (!(scaled_logit + most_noise_of(bits) >= highest_)) return;
    const double score = scaled_logit + noise_of(bits);
    if (score > highest_ || (score == highest_ && token < winner_)) {
      highest_ = score;
      winner_ = token;
    }
  }
  int32_t winner() const { return winner_; }

 private:
  uint64_t key_;
  double highest_ = -std::numeric_limits<double>::infinity();
  int32_t winner_ = 0;
};

}  // namespace

int32_t argmax(std::span<const float> values) {
  size_t best = 0;
  float highest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > highest) {
      highest = values[i];
      best = i;
    }
  }
  return static_cast<int32_t>(best);
}

double uniform_at(uint64_t seed, uint64_t position) {
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

double gumbel_at(uint64_t seed, uint64_t position, int32_t token) {
  return noise_of(noise_bits(noise_key(seed, position), token));
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab_size, uint64_t seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(uniform_at(seed, i) * static_cast<double>(vocab_size));
  }
  return tokens;
}

void Sampler::observe_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) ++seen_[token];
}

int32_t Sampler::choose(std::span<const float> logits, int64_t position) {
  shaped_.assign(logits.begin(), logits.end());
  shape_logits(shaped_);
  return params_.temperature == 0 ? argmax(shaped_) : draw(shaped_, position);
}

void Sampler::record(int32_t token) {
  ++seen_[token];
  ++generated_[token];
}

void Sampler::forget(int32_t token) {
  for (auto* counts : {&seen_, &generated_}) {
    const auto found = counts->find(token);
    MOTLEY_CHECK(found != counts->end(), "a token is taken back that was never recorded");
    if (--found->second == 0) counts->erase(found);
  }
}

SampledToken Sampler::sample(std::span<const float> logits, int64_t position, int top_logprobs) {
  SampledToken result;
  result.token = choose(logits, position);
  if (top_logprobs > 0) {
    const double normaliser = log_normaliser(logits);
    result.logprob = logits[static_cast<size_t>(result.token)] - normaliser;
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto count = std::min<std::ptrdiff_t>(top_logprobs, std::ssize(order_));
    std::partial_sort(order_.begin(), order_.begin() + count, order_.end(),
                      [&](int32_t a, int32_t b) {
                        const float left = logits[static_cast<size_t>(a)];
                        const float right = logits[static_cast<size_t>(b)];
                        return left != right ? left > right : a < b;
                      });
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const int32_t token = order_[static_cast<size_t>(i)];
      result.top.push_back({token, logits[static_cast<size_t>(token)] - normaliser});
    }
  }
  record(result.token);
  return result;
}

void Sampler::shape_logits(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) {
    logits[static_cast<size_t>(token)] += static_cast<float>(bias);
  }
  if (params_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(params_.repetition_penalty);
    for (const auto& [token, count] : seen_) {
      if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
      float& logit = logits[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  if (params_.presence_penalty != 0 || params_.frequency_penalty != 0) {
    for (const auto& [token, count] : generated_) {
      logits[static_cast<size_t>(token)] -= static_cast<float>(
          params_.presence_penalty + params_.frequency_penalty * static_cast<double>(count));
    }
  }
}

int32_t Sampler::draw(std::span<const float> logits, int64_t position) {
  // The likeliest first: what cannot reach its score even with the most noise needs none computed.
  GumbelRace race(noise_key(params_.seed, static_cast<uint64_t>(position)));
  const auto enter = [&](int32_t token) {
    race.enter(token, logits[static_cast<size_t>(token)] / params_.temperature);
  };
  if (limits_candidates(params_)) {
    find_candidates(logits, params_, &order_);
    for (const int32_t token : order_) enter(token);
  } else {
    enter(argmax(logits));
    for (size_t i = 0; i < logits.size(); ++i) enter(static_cast<int32_t>(i));
  }
  return race.winner();
}

}  // namespace motley
