#include "ops/index_pool.h"

#include <algorithm>

namespace motley {
namespace {

void expand_row(const PoolTokensArgs& args, int64_t row, int64_t position) {
  const auto pool = static_cast<int32_t>(args.pool);
  const int32_t* chosen = args.pools.row<int32_t>(row);
  const int32_t count = args.counts.as<int32_t>()[row];
  MOTLEY_CHECK(count >= 0 && count <= args.pools.cols(), "more pools than there is room for");
  int32_t* tokens = args.positions.row<int32_t>(row);
  int32_t next = 0;
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < pool; ++j) tokens[next++] = chosen[i] * pool + j;
  }
  if (args.tail) {
    const auto end = static_cast<int32_t>(position + 1);
    for (int32_t token = end / pool * pool; token < end; ++token) tokens[next++] = token;
  }
  std::fill(tokens + next, tokens + args.positions.cols(), -1);
  args.token_counts.as<int32_t>()[row] = next;
}

}  // namespace

void host_pool_tokens(Stream&, const PoolTokensArgs& args) {
  MOTLEY_CHECK(args.positions.cols() == pool_tokens_width(args.pools.cols(), args.pool, args.tail),
               "the positions have room for every pool and the tail");
  for (const RowSegment& segment : args.segments) {
    for (int32_t row = 0; row < segment.rows; ++row) {
      expand_row(args, segment.first_row + row, segment.first_position.value + row);
    }
  }
}

}  // namespace motley
