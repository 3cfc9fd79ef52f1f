#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

SampledToken Sampler::sample(std::span<const float> logits, int64_t position, int top_logprobs) {
  shaped_.assign(logits.begin(), logits.end());
  shape_logits(shaped_);
  SampledToken result;
  result.token = params_.temperature == 0 ? argmax(shaped_) : draw(shaped_, position);
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
  ++seen_[result.token];
  ++generated_[result.token];
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
  // Candidates in total order, as many as top-k allows.
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
  } else {
    std::sort(order_.begin(), order_.end(), better);
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
  double target = uniform_at(params_.seed, static_cast<uint64_t>(position)) * mass;
  for (size_t i = 0; i + 1 < kept; ++i) {
    target -= weights[i];
    if (target < 0) return order_[i];
  }
  return order_[kept - 1];
}

}  // namespace motley
