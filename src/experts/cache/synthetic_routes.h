// Routes made up by a rule, to compare eviction policies where no recorded trace is at hand.
//
// Every layer draws for itself; the experts of a token are drawn one after the other without
// replacement. The same options give the same routes on every machine. Thread rule: free function.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "experts/cache/route_trace.h"

namespace motley {

enum class RoutePattern : uint8_t {
  kZipf,     // popularity 1 / rank^skew, the ranks a random order per layer
  kUniform,  // every expert alike
  kShift,    // Zipf whose order is drawn anew, in every layer, every `shift_tokens` tokens
  kScan,     // all experts in turn, again and again
};

struct SyntheticOptions {
  RoutePattern pattern = RoutePattern::kZipf;
  int layers = 8;
  int experts = 256;
  int top = 8;
  int64_t tokens = 4096;
  double skew = 1;
  int64_t shift_tokens = 512;
  uint64_t seed = 1;
};

std::string_view route_pattern_name(RoutePattern pattern);

// All tokens are decoded ones. kInvalidArgument for a shape that no trace may have, or one of more
// than 2^28 ids.
Result<RouteTrace> make_synthetic_routes(const SyntheticOptions& options);

}  // namespace motley
