// Products of weight matrices with a few rows: decode and verify rows, and prefill rows in the
// exact profile.
//
// Bandwidth bound by design: weights stream once through shared memory, 16 rows of W against up to
// 16 rows of x per block on the tensor cores, K cut into four fixed parts. A row's bits depend on
// W, its own x and the profile only: columns of an mma are independent and there is no other path
// for fewer rows. Exact: three bfloat16 pieces of x. Fast: 16-bit fixed point for affine weights
// with BF16 scales (integer_rows.h), else one bfloat16 piece.
#pragma once

#include <cstdint>
#include <span>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/integer_rows.h"
#include "ops/cuda/prepared_rows.h"
#include "ops/op_table.h"
#include "tensor/weight_matrix.h"

namespace motley::cuda {

// One matrix against the rows x_ids[0..count) (or first_x + i), into rows out_ids[i] (or
// first_out + i) of y. The id lists are device memory.
struct MatvecJob {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
  int64_t code_stride = 0;   // bytes
  int64_t scale_stride = 0;  // bytes
  const int32_t* x_ids = nullptr;
  const int32_t* out_ids = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  int32_t rows = 0;  // of W
  int32_t count = 0;
  int32_t first_x = 0;
  int32_t first_out = 0;
  int32_t first_tile = 0;  // filled by run_matvec for lists of unequal jobs
};

// What the jobs of one launch have in common.
struct MatvecShape {
  WeightFormat format = WeightFormat::kMlxAffine;
  MlxAffineFormat affine;
  DType scale_dtype = DType::kBf16;
  int64_t cols = 0;
  NumericProfile profile = NumericProfile::kFast;

  bool is_integer() const {
    return profile == NumericProfile::kFast && format == WeightFormat::kMlxAffine &&
           scale_dtype == DType::kBf16;
  }
  int pieces() const { return profile == NumericProfile::kFast ? 1 : 3; }
  friend bool operator==(const MatvecShape&, const MatvecShape&) = default;
};

// Rows of x for one shape; only one of the two is filled.
struct MatvecRows {
  PreparedRows pieces;
  IntegerRows fixed;
};

// True when the fast kernels take W: BF16 or MLX affine with 16-bit scales, aligned planes.
bool matvec_takes(const WeightMatrix& weights);

MatvecShape matvec_shape(const WeightMatrix& weights, NumericProfile profile);
MatvecJob matvec_job(const WeightMatrix& weights, const TensorView& y);

// x, gated, as scratch of `stream`.
MatvecRows matvec_rows(CudaStream& stream, const MatvecShape& shape, const ConstTensorView& x,
                       const RowGate& gate);
// True when rows prepared for `a` serve `b`.
bool same_rows(const MatvecShape& a, const MatvecShape& b);

// Jobs with any number of rows each; at most kMaxInlineJobs.
inline constexpr size_t kMaxInlineJobs = 8;
void run_matvec(CudaStream& stream, const MatvecShape& shape, const MatvecRows& x,
                std::span<const MatvecJob> jobs);

// Many jobs with equal W rows; `jobs` is device memory and `rows` is of each W. max_count: the
// largest count.
void run_matvec_uniform(CudaStream& stream, const MatvecShape& shape, const MatvecRows& x,
                        const MatvecJob* jobs, int64_t job_count, int64_t rows, int max_count);

}  // namespace motley::cuda
