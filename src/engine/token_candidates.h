// Which tokens top-k, top-p and min-p leave to draw from.
//
// top-k keeps the k largest logits; top-p, of those, the shortest run of the likeliest whose mass
// reaches p; min-p what has at least that share of the likeliest one's probability. At least one
// token stays. Ties go to the lower id. NaN is never kept. The vocabulary is not sorted: only what
// can be kept is.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling_params.h"

namespace motley {

// True when `params` leave out any token.
bool limits_candidates(const SamplingParams& params);

// Ids of `logits` [vocab], which are not divided by the temperature yet, the likeliest first. Empty
// only when no logit is above minus infinity. REQUIRES: params.temperature > 0.
void find_candidates(std::span<const float> logits, const SamplingParams& params,
                     std::vector<int32_t>* kept);

}  // namespace motley
