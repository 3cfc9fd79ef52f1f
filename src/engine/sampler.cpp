#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

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
  const uint64_t bits = mix(mix(mix(seed) ^ position) ^ static_cast<uint64_t>(token));
  // The middle of one of 2^52 intervals: never 0 or 1.
  const double uniform = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  return -std::log(-std::log(uniform));
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
  const double normaliser = log_normaliser(logits);
  result.logprob = logits[static_cast<size_t>(result.token)] - normaliser;
  if (top_logprobs > 0) {
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

void Sampler::keep_candidates(std::span<const float> logits) {
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float left = logits[static_cast<size_t>(a)];
    const float right = logits[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  };
  if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < order_.size()) {
    std::partial_sort(order_.begin(), order_.begin() + params_.top_k, order_.end(), better);
    order_.resize(static_cast<size_t>(params_.top_k));
  } else if (params_.top_p < 1 || params_.min_p > 0) {
    std::sort(order_.begin(), order_.end(), better);
  } else {
    return;
  }
  const double highest = logits[static_cast<size_t>(order_.front())];
  std::vector<double> weights(order_.size());
  double total = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const double logit = logits[static_cast<size_t>(order_[i])];
    weights[i] = std::exp((logit - highest) / params_.temperature);
    total += weights[i];
  }
  // top-p: the shortest prefix whose mass reaches top_p; min-p: at least min_p of the best.
  size_t kept = 0;
  double mass = 0;
  while (kept < order_.size() && (kept == 0 || mass < params_.top_p * total) &&
         weights[kept] >= params_.min_p) {
    mass += weights[kept++];
  }
  order_.resize(kept);
}

int32_t Sampler::draw(std::span<const float> logits, int64_t position) {
  keep_candidates(logits);
  const auto at = static_cast<uint64_t>(position);
  const auto scaled = [&](int32_t token) {
    return logits[static_cast<size_t>(token)] / params_.temperature;
  };
  // The likeliest first: what cannot reach its score even with the most noise needs none computed.
  int32_t best = *std::max_element(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const float left = logits[static_cast<size_t>(a)];
    const float right = logits[static_cast<size_t>(b)];
    return left != right ? left < right : a > b;
  });
  double highest = scaled(best) + gumbel_at(params_.seed, at, best);
  for (const int32_t token : order_) {
    const double logit = scaled(token);
    if (!(logit + kMostNoise >= highest)) continue;
    const double score = logit + gumbel_at(params_.seed, at, token);
    if (score > highest || (score == highest && token < best)) {
      highest = score;
      best = token;
    }
  }
  return best;
}

}  // namespace motley
