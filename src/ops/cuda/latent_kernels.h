// Parts of attention over latent rows; contracts in ops/latent_attention.h.
#pragma once

#include <span>

#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/latent_attention.h"

namespace motley::cuda {

void rotate_heads(Stream& stream, const RotateArgs& args);
void write_rows(Stream& stream, const ConstTensorView& x,
                std::span<const RowCacheSegment> segments);
void head_linear(Stream& stream, const ConstTensorView& x, std::span<const WeightMatrix> weights,
                 bool transposed, const TensorView& y);

// One row of attention over the first `visible` rows of a paged cache, or those of them that its
// selection names. Device memory.
struct LatentRow {
  const std::byte* const* pages = nullptr;
  int64_t visible = 0;
  CacheShard shard;
  int32_t row = 0;
};

struct LatentCall {
  const float* q = nullptr;
  int64_t q_stride = 0;  // per row; a head's vector follows the one before
  const LatentRow* rows = nullptr;
  const int32_t* positions = nullptr;  // null: every key
  int64_t positions_stride = 0;
  const int32_t* counts = nullptr;
  int64_t counts_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;
  int64_t lse_stride = 0;
  float* part_out = nullptr;  // [rows][chunks][heads][rank], when chunks > 1
  float* part_lse = nullptr;  // [rows][chunks][heads]
  int chunks = 1;             // of kAttendChunk keys, the last with all that are left
  int heads = 0;
  int rank = 0;
  int width = 0;
  int rows_per_page = 0;
  bool is_bf16 = false;
  float scale = 1.0f;
};

// Tensor cores: a bfloat16 cache, rows of up to 576 elements and ranks of up to 512, both multiples
// of 16. The fast profile's.
bool latent_tiles_take(const CudaStream& stream, const LatentCall& call);
void latent_tiles(CudaStream& stream, const LatentCall& call, int64_t rows);
// Any shape and either cache, slow.
void latent_scalar(CudaStream& stream, const LatentCall& call, int64_t rows);

}  // namespace motley::cuda
