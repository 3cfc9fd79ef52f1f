// Chooses tokens. Order of operations: logit bias, repetition, presence and frequency penalties,
// temperature, top-k, top-p, min-p, draw. Ties everywhere: higher value, then lower token id.
//
// A draw takes the largest of logit / temperature + noise, the noise a Gumbel variable that is a
// function of (seed, position, token id) alone: which token is drawn has the softmax's
// probabilities, a continued sequence and a recomputed one draw alike, and two models that nearly
// agree about the logits nearly always draw the same token. The last is why a draft model draws
// with the noise of the target (docs/decisions/0019-drafts-share-the-noise.md).
// Thread rule: one thread per sampler.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/sampling_params.h"

namespace motley {

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;
};

struct SampledToken {
  int32_t token = 0;
  double logprob = 0;             // by the model's own distribution; 0 unless some were asked for
  std::vector<TokenLogprob> top;  // the most likely alternatives, best first
};

class Sampler {
 public:
  explicit Sampler(SamplingParams params) : params_(std::move(params)) {}

  // Tokens that count for the repetition penalty (prompt and output).
  void observe_prompt(std::span<const int32_t> tokens);

  // `logits` [vocab]; `position` is that of the token to be chosen. The choice is recorded.
  SampledToken sample(std::span<const float> logits, int64_t position, int top_logprobs);

  // What sample() would choose; nothing is recorded.
  int32_t choose(std::span<const float> logits, int64_t position);
  // Output as the penalties count it: added when chosen, and taken back, the newest first, when it
  // was a draft.
  void record(int32_t token);
  void forget(int32_t token);

  const SamplingParams& params() const { return params_; }

 private:
  void shape_logits(std::span<float> logits) const;
  int32_t draw(std::span<const float> logits, int64_t position);

  SamplingParams params_;
  std::unordered_map<int32_t, int64_t> seen_;       // prompt and output
  std::unordered_map<int32_t, int64_t> generated_;  // output only
  std::vector<float> shaped_;                       // scratch, one per vocabulary entry
  std::vector<int32_t> order_;                      // scratch
};

// Lowest id among the largest values. NaN never wins; all NaN gives 0.
int32_t argmax(std::span<const float> values);

// Uniform in [0, 1), a function of both arguments alone.
double uniform_at(uint64_t seed, uint64_t position);
// Gumbel: -log(-log u) for a uniform u, a function of the arguments alone; below kMostNoise.
double gumbel_at(uint64_t seed, uint64_t position, int32_t token);
constexpr double kMostNoise = 38;
// `count` ids below `vocab_size`, functions of the seed alone; for benchmarks and verification.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocab_size, uint64_t seed);

}  // namespace motley
