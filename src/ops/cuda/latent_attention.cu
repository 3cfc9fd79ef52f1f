// Attention over latent rows: which rows, in how many parts, by which kernel.
#include "ops/cuda/latent_kernels.h"

#include <algorithm>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

// Room for the parts of split rows; more rows go in several rounds.
constexpr int64_t kPartBytes = int64_t{256} << 20;

LatentCall make_call(const LatentAttentionArgs& args) {
  LatentCall call;
  call.q = reinterpret_cast<const float*>(args.q.data);
  call.q_stride = args.q.row_stride;
  if (!args.selection.is_empty()) {
    call.positions = reinterpret_cast<const int32_t*>(args.selection.positions.data);
    call.positions_stride = args.selection.positions.row_stride;
    call.counts = reinterpret_cast<const int32_t*>(args.selection.counts.data);
    call.counts_stride = args.selection.counts.row_stride;
  }
  call.out = reinterpret_cast<float*>(args.result.out.data);
  call.out_stride = args.result.out.row_stride;
  call.lse = reinterpret_cast<float*>(args.result.lse.values.data);
  call.lse_stride = args.result.lse.values.row_stride;
  const RowCacheLayout& layout = args.segments[0].cache.layout;
  call.heads = static_cast<int>(args.q.shape[1]);
  call.rank = args.rank;
  call.width = layout.width;
  call.rows_per_page = layout.rows_per_page;
  call.is_bf16 = layout.dtype == DType::kBf16;
  call.scale = args.scale;
  return call;
}

// The merge of split rows is that of the other attention.
void merge_parts(CudaStream& stream, const LatentCall& call, std::span<const LatentRow> rows) {
  std::vector<AttendRow> items;
  for (const LatentRow& row : rows) items.push_back({nullptr, row.visible, row.row});
  AttendCall merge;
  merge.rows = stream.upload<AttendRow>(items);
  merge.out = call.out;
  merge.out_stride = call.out_stride;
  merge.lse = call.lse;
  merge.lse_stride = call.lse_stride;
  merge.part_out = call.part_out;
  merge.part_lse = call.part_lse;
  merge.chunks = call.chunks;
  merge.heads = call.heads;
  merge.dim = call.rank;
  merge_chunks(stream, merge, static_cast<int64_t>(rows.size()));
}

// Decode rows are cut into chunks, which share a row's work over the device. Prefill rows fill it
// by their number. most_keys: that a selection may name; it bounds the chunks, whose last has all
// keys that are left, so that a cut depends on nothing but the row and the model.
void attend_rows(CudaStream& stream, LatentCall call, std::span<const LatentRow> rows, bool split,
                 int64_t most_keys, bool fast) {
  int64_t longest = 1;
  for (const LatentRow& row : rows) longest = std::max(longest, row.visible);
  if (most_keys > 0) longest = std::min(longest, most_keys);
  call.chunks = split ? static_cast<int>(divide_up(longest, kAttendChunk)) : 1;
  const int64_t row_floats = int64_t{call.chunks} * call.heads * (call.rank + 1);
  const auto limit =
      static_cast<size_t>(std::clamp<int64_t>(kPartBytes / (4 * row_floats), 1, 32768));
  for (size_t begin = 0; begin < rows.size(); begin += limit) {
    Arena::Scope scope(stream.scratch());
    const auto part = rows.subspan(begin, std::min(limit, rows.size() - begin));
    const auto count = static_cast<int64_t>(part.size());
    call.rows = stream.upload(part);
    if (call.chunks > 1) {
      call.part_out =
          stream.scratch().allocate<float>(count * call.chunks * call.heads * call.rank);
      call.part_lse = stream.scratch().allocate<float>(count * call.chunks * call.heads);
    }
    if (fast && latent_tiles_take(stream, call)) {
      latent_tiles(stream, call, count);
    } else {
      latent_scalar(stream, call, count);
    }
    if (call.chunks > 1) merge_parts(stream, call, part);
  }
}

template <NumericProfile kProfile>
void attend(Stream& any, const LatentAttentionArgs& args) {
  if (args.segments.empty()) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<LatentRow> rows[2];  // by role
  for (const RowCacheSegment& segment : args.segments) {
    const RowCacheView& cache = segment.cache;
    const std::byte* const* pages = stream.upload(std::span<std::byte* const>(cache.pages));
    for (int32_t i = 0; i < segment.rows.rows; ++i) {
      const int64_t position = segment.rows.first_position.value + i;
      rows[segment.rows.role == RowRole::kDecode ? 0 : 1].push_back(
          {pages, cache.shard.tokens_below(position + 1), cache.shard, segment.rows.first_row + i});
    }
  }
  const LatentCall call = make_call(args);
  const int64_t most_keys = args.selection.is_empty() ? 0 : args.selection.positions.cols();
  for (int role = 0; role < 2; ++role) {
    if (rows[role].empty()) continue;
    attend_rows(stream, call, rows[role], role == 0, most_keys, kProfile == NumericProfile::kFast);
  }
}

}  // namespace

LatentOps latent_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) {
    return {rotate_heads, write_rows, head_linear, attend<NumericProfile::kExact>};
  }
  return {rotate_heads, write_rows, head_linear, attend<NumericProfile::kFast>};
}

}  // namespace motley::cuda
