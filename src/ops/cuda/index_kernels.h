// Parts of the indexer; contracts in ops/index.h.
#pragma once

#include "ops/index.h"

namespace motley::cuda {

void index_scores(Stream& stream, const IndexScoresArgs& args);
void index_select(Stream& stream, const IndexSelectArgs& args);

}  // namespace motley::cuda
