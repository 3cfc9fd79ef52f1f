// The parts of the attention group; contracts in ops/attention.h.
#pragma once

#include <span>

#include "ops/attention.h"
#include "ops/cuda/cuda_stream.h"

namespace motley::cuda {

void head_norm_rotary(Stream& stream, const HeadNormRotaryArgs& args);
void cache_write(Stream& stream, const ConstTensorView& k, const ConstTensorView& v,
                 std::span<const AttentionSegment> segments);
void merge_attention(Stream& stream, std::span<const PartialAttention> parts,
                     const PartialAttention& result);

// One row of attention: the first `visible` tokens of a paged cache. Device memory.
struct AttendRow {
  const std::byte* const* pages = nullptr;
  int64_t visible = 0;
  int32_t row = 0;
};

struct AttendCall {
  const float* q = nullptr;
  int64_t q_stride = 0;
  const AttendRow* rows = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;
  int64_t lse_stride = 0;
  float* part_out = nullptr;  // [rows][chunks][heads][dim], when chunks > 1
  float* part_lse = nullptr;  // [rows][chunks][heads]
  int chunks = 1;
  int heads = 0;
  int kv_heads = 0;
  int dim = 0;
  float scale = 1.0f;
  PageLayout layout;
};

// Tokens of one part of a row's attention: a fixed cut by position in the shard (R5).
inline constexpr int kAttendChunk = 256;

// Tensor-core kernel; takes head dims 64, 128, 256, groups of up to 16 query heads and pages of a
// multiple of 16 tokens.
bool attend_split_takes(const AttendCall& call);
void attend_split(CudaStream& stream, const AttendCall& call, int64_t rows);
// Any shape, slow.
void attend_scalar(CudaStream& stream, const AttendCall& call, int64_t rows);
// Parts of a split row, in order, into out and lse.
void merge_chunks(CudaStream& stream, const AttendCall& call, int64_t rows);

// Prefill rows of one segment over a bfloat16 cache, tiles of rows against tiles of keys.
bool attend_tiles_takes(const AttentionArgs& args, const AttentionSegment& segment);
void attend_tiles(CudaStream& stream, const AttentionArgs& args, const AttentionSegment& segment);

}  // namespace motley::cuda
