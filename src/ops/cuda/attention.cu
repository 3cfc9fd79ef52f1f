#include <algorithm>
#include <vector>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

// Room for the parts of split rows; more rows go in several rounds.
constexpr int64_t kPartBytes = int64_t{256} << 20;

AttendCall make_call(const AttentionArgs& args, const AttentionSegment& segment) {
  AttendCall call;
  call.q = reinterpret_cast<const float*>(args.q.data);
  call.q_stride = args.q.row_stride;
  call.out = reinterpret_cast<float*>(args.result.out.data);
  call.out_stride = args.result.out.row_stride;
  call.lse = reinterpret_cast<float*>(args.result.lse.values.data);
  call.lse_stride = args.result.lse.values.row_stride;
  call.heads = static_cast<int>(args.q.shape[1]);
  call.kv_heads = args.kv_heads;
  call.dim = static_cast<int>(args.q.shape[2]);
  call.scale = args.scale;
  call.layout = segment.cache.layout;
  return call;
}

// Rows with their parts: split kernel, then merge. All caches of a call share one layout.
void attend_rows(CudaStream& stream, AttendCall call, std::span<const AttendRow> rows) {
  int64_t longest = 1;
  for (const AttendRow& row : rows) longest = std::max(longest, row.visible);
  call.chunks = static_cast<int>(divide_up(longest, kAttendChunk));
  const int64_t row_floats = int64_t{call.chunks} * call.heads * (call.dim + 1);
  const auto limit =
      static_cast<size_t>(std::clamp<int64_t>(kPartBytes / (4 * row_floats), 1, 32768));
  for (size_t begin = 0; begin < rows.size(); begin += limit) {
    Arena::Scope scope(stream.scratch());
    const auto part = rows.subspan(begin, std::min(limit, rows.size() - begin));
    const auto count = static_cast<int64_t>(part.size());
    call.rows = stream.upload(part);
    if (call.chunks > 1) {
      call.part_out = stream.scratch().allocate<float>(count * call.chunks * call.heads * call.dim);
      call.part_lse = stream.scratch().allocate<float>(count * call.chunks * call.heads);
    }
    if (attend_split_takes(call)) {
      attend_split(stream, call, count);
    } else {
      attend_scalar(stream, call, count);
    }
    if (call.chunks > 1) merge_chunks(stream, call, count);
  }
}

template <NumericProfile kProfile>
void attend(Stream& any, const AttentionArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  if (args.segments.empty()) return;
  std::vector<AttendRow> rows;
  for (const AttentionSegment& segment : args.segments) {
    const bool prefill = segment.rows.role == RowRole::kPrefill;
    if (prefill && kProfile == NumericProfile::kFast && attend_tiles_takes(args, segment)) {
      attend_tiles(stream, args, segment);
      continue;
    }
    const std::byte* const* pages = stream.upload(std::span<std::byte* const>(segment.cache.pages));
    for (int32_t i = 0; i < segment.rows.rows; ++i) {
      const int64_t position = segment.rows.first_position.value + i;
      rows.push_back(
          {pages, segment.cache.shard.tokens_below(position + 1), segment.rows.first_row + i});
    }
  }
  if (!rows.empty()) attend_rows(stream, make_call(args, args.segments[0]), rows);
}

}  // namespace

AttentionOps attention_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) {
    return {head_norm_rotary, cache_write, attend<NumericProfile::kExact>, merge_attention};
  }
  return {head_norm_rotary, cache_write, attend<NumericProfile::kFast>, merge_attention};
}

}  // namespace motley::cuda
