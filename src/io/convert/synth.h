// Random checkpoints of any real shape in the real layout, for benchmarks.
//
// Byte and operation counts are those of the real model. Scales are chosen so that activations stay
// near one through any number of layers: matrices have variance 1 / in, the two that write to the
// residual stream a further 1 / (2 layers).
#pragma once

#include <cstdint>
#include <string>

#include "base/context.h"
#include "io/convert/checkpoint_export.h"
#include "io/convert/format_request.h"

namespace motley {

struct SynthOptions {
  std::string config_path;  // a config.json
  FormatRequest format;
  int64_t layers = 0;  // 0: as in the config; fewer cut it to what fits
  uint64_t seed = 1;
  // Expert popularity follows Zipf's law with this exponent; 0: even. Neighbouring token ids share
  // most of their embedding, so a stream of near ids chooses experts that repeat.
  double router_skew = 0;
  bool drafts = true;
  ExportOptions output;
};

Status synthesise_checkpoint(Context& context, const SynthOptions& options);

}  // namespace motley
