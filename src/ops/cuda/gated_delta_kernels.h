// The token-by-token form of the gated delta rule; contract in ops/gated_delta.h.
#pragma once

#include "ops/gated_delta.h"

namespace motley::cuda {

void gated_delta_recurrent(Stream& stream, const GatedDeltaArgs& args);
void gated_delta_commit(Stream& stream, const GatedDeltaShape& shape,
                        const GatedDeltaSegment& segment);

}  // namespace motley::cuda
