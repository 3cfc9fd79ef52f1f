#include <algorithm>

#include "ops/cpu/activation_packs.h"
#include "ops/cpu/linear_ops.h"
#include "ops/cpu/row_work.h"

namespace motley {
namespace {

// Elements of x in one pass over the weights: half a megabyte once quantised, or a whole one as
// bfloat16, whose weights cost more to unpack.
constexpr int64_t kRangeElements = 192 * 1024;
constexpr int64_t kBf16RangeElements = 512 * 1024;
constexpr int64_t kMinRangeTokens = 32;

struct RoleRows {
  ActivationPacks x;
  int64_t first = 0;
  bool fast = false;
};

RoleRows pack_role(const LinearKernels& kernels, RoleArithmetic arithmetic, Stream& stream,
                   std::span<const float* const> rows, int64_t first, int64_t cols,
                   std::span<const LinearTarget> targets) {
  ActivationPacks packs(rows, cols, arithmetic);
  for (const LinearTarget& target : targets) packs.require(kernels, stream, target.weights);
  packs.pack(kernels, stream);
  packs.build_tiles(kernels, stream);
  return {packs, first, arithmetic.fast};
}

void check_call(const ConstTensorView& x, RowCounts counts, std::span<const LinearTarget> targets) {
  MOTLEY_CHECK(counts.total() == x.rows(), "row counts must cover x");
  for (const LinearTarget& target : targets) {
    MOTLEY_CHECK(target.y.rows() == x.rows() && target.y.cols() == target.weights.rows,
                 "y must be [rows, out_features]");
  }
}

// The tokens of each role in one pass over the weights. Their quantised rows stay in the
// second-level cache while the weights go by; the weights of a few tokens more are cheaper to read
// again than those rows.
int64_t range_tokens(const LinearKernels& kernels, int64_t cols, bool fast) {
  const int64_t elements = kernels.bfloat16_tiles && fast ? kBf16RangeElements : kRangeElements;
  return std::max(kMinRangeTokens, elements / cols / kTileTokens * kTileTokens);
}

// Rows [begin, begin + kSmallBlockRows) of one target for range `range` of both roles: the block is
// read once.
void multiply_block(const LinearKernels& kernels, const LinearTarget& target,
                    std::span<float* const> y, int64_t begin, std::span<const RoleRows> roles,
                    int64_t range, std::byte* scratch) {
  const int64_t count = std::min(kSmallBlockRows, target.weights.rows - begin);
  const WeightMatrix weights = target.weights.slice_rows(begin, count);
  for (const RoleRows& role : roles) {
    const int64_t most = range_tokens(kernels, weights.cols, role.fast);
    const int64_t first = range * most;
    const int64_t tokens = std::min(most, role.x.count() - first);
    if (tokens <= 0) continue;
    const auto y_rows =
        y.subspan(static_cast<size_t>(role.first + first), static_cast<size_t>(tokens));
    multiply_rows(kernels, weights, role.x.slice(first, tokens), {y_rows, begin}, role.fast,
                  scratch);
  }
}

}  // namespace

void run_linear(const LinearKernels& kernels, const MatrixArithmetic& arithmetic, Stream& stream,
                const ConstTensorView& x, RowCounts counts, std::span<const LinearTarget> targets) {
  check_call(x, counts, targets);
  if (x.rows() == 0 || targets.empty()) return;
  const Arena::Scope scope(stream.scratch());
  const auto rows = row_pointers(stream, x);
  const auto decode = static_cast<size_t>(counts.decode);
  const RoleRows roles[] = {
      pack_role(kernels, arithmetic.decode, stream, rows.first(decode), 0, x.cols(), targets),
      pack_role(kernels, arithmetic.prefill, stream, rows.subspan(decode), counts.decode, x.cols(),
                targets)};
  const auto target_count = static_cast<int64_t>(targets.size());
  auto* y = stream.scratch().allocate<std::span<float* const>>(target_count);
  auto* ends = stream.scratch().allocate<int64_t>(target_count);  // blocks up to and with target i
  int64_t blocks = 0;
  for (int64_t i = 0; i < target_count; ++i) {
    const LinearTarget& target = targets[static_cast<size_t>(i)];
    y[i] = row_pointers(stream, target.y);
    blocks += blocks_of(target.weights.rows, kSmallBlockRows);
    ends[i] = blocks;
  }
  const WorkerScratch scratch(stream, kernels, x.cols());
  int64_t ranges = 1;
  for (const RoleRows& role : roles) {
    const int64_t most = range_tokens(kernels, x.cols(), role.fast);
    ranges = std::max(ranges, blocks_of(role.x.count(), most));
  }
  stream.threads().parallel_ranges(blocks * ranges, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t block = piece % blocks;
      const int64_t i = std::upper_bound(ends, ends + target_count, block) - ends;
      const int64_t first = i == 0 ? 0 : ends[i - 1];
      multiply_block(kernels, targets[static_cast<size_t>(i)], y[i],
                     (block - first) * kSmallBlockRows, roles, piece / blocks, scratch.of(worker));
    }
  });
}

void run_embed(Stream& stream, const WeightMatrix& table, std::span<const int32_t> ids,
               const TensorView& out) {
  MOTLEY_CHECK(out.cols() == table.cols && out.rows() == static_cast<int64_t>(ids.size()),
               "out must be [ids, table.cols]");
  stream.threads().parallel_for(out.rows(), 8, [&](int /*worker*/, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      decode_row(table, ids[static_cast<size_t>(row)], out.row<float>(row));
    }
  });
}

}  // namespace motley
