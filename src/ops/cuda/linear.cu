#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/matvec.h"
#include "ops/cuda/scalar_linear.h"
#include "ops/cuda/weight_scalar.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

// All targets through the row kernels, neighbours of one shape in one launch.
void linear_rows(CudaStream& stream, const ConstTensorView& x, int64_t first_row,
                 std::span<const LinearTarget> targets, NumericProfile profile) {
  const int64_t rows = x.rows();
  MatvecRows prepared;
  MatvecShape prepared_for;
  bool is_prepared = false;
  std::vector<MatvecJob> jobs;
  MatvecShape shape;
  for (const LinearTarget& target : targets) {
    const TensorView y = target.y.slice_rows(first_row, rows);
    if (!matvec_takes(target.weights)) {
      run_scalar_linear(stream, target.weights, x, y, rows, nullptr, nullptr);
      continue;
    }
    const MatvecShape wanted = matvec_shape(target.weights, profile);
    if (!jobs.empty() && (jobs.size() == kMaxInlineJobs || !(wanted == shape))) {
      run_matvec(stream, shape, prepared, jobs);
      jobs.clear();
    }
    shape = wanted;
    if (!is_prepared || !same_rows(prepared_for, shape)) {
      prepared = matvec_rows(stream, shape, x, {});
      prepared_for = shape;
      is_prepared = true;
    }
    jobs.push_back(matvec_job(target.weights, y));
    jobs.back().count = static_cast<int32_t>(rows);
  }
  if (!jobs.empty()) run_matvec(stream, shape, prepared, jobs);
}

void linear_tiles(CudaStream& stream, const ConstTensorView& x, int64_t first_row,
                  std::span<const LinearTarget> targets) {
  PreparedRows prepared;
  RowOrder prepared_order{};
  for (const LinearTarget& target : targets) {
    const TensorView y = target.y.slice_rows(first_row, x.rows());
    if (!gemm_takes(target.weights)) {
      run_scalar_linear(stream, target.weights, x, y, x.rows(), nullptr, nullptr);
      continue;
    }
    const RowOrder order = gemm_order(stream, target.weights);
    if (prepared.rows == 0 || order != prepared_order) {
      prepared = prepare_rows(stream, x, {}, 1, order);
      prepared_order = order;
    }
    run_gemm(stream, target.weights, prepared, y);
  }
}

template <NumericProfile kProfile>
void linear(Stream& any, const ConstTensorView& x, RowCounts counts,
            std::span<const LinearTarget> targets) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  if (counts.decode > 0) {
    linear_rows(stream, x.slice_rows(0, counts.decode), 0, targets, kProfile);
  }
  if (counts.prefill == 0) return;
  const ConstTensorView rest = x.slice_rows(counts.decode, counts.prefill);
  if (kProfile == NumericProfile::kExact) {
    linear_rows(stream, rest, counts.decode, targets, kProfile);
  } else {
    linear_tiles(stream, rest, counts.decode, targets);
  }
}

__global__ void __launch_bounds__(kThreads)
    embed_kernel(ScalarWeights table, const int32_t* ids, Rows out) {
  const int64_t row = blockIdx.y;
  const int col = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (col < table.cols) out.row(row)[col] = weight_at(table, ids[row], col);
}

void embed(Stream& any, const WeightMatrix& table, std::span<const int32_t> ids,
           const TensorView& out) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  if (!is_scalar_format(table)) {
    return stream.note(cudaErrorNotSupported, "embed: weights of this format");
  }
  // The grid's second dimension is limited to 65535.
  for (size_t begin = 0; begin < ids.size(); begin += 32768) {
    const std::span<const int32_t> part =
        ids.subspan(begin, std::min<size_t>(32768, ids.size() - begin));
    const dim3 grid(grid_of(table.cols, kThreads), static_cast<unsigned>(part.size()));
    const auto count = static_cast<int64_t>(part.size());
    embed_kernel<<<grid, kThreads, 0, stream.handle()>>>(
        scalar_weights(table), stream.upload(part),
        rows_of(out.slice_rows(static_cast<int64_t>(begin), count)));
    stream.check_launch("embed");
  }
}

}  // namespace

LinearOps linear_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) return {linear<NumericProfile::kExact>, embed};
  return {linear<NumericProfile::kFast>, embed};
}

}  // namespace motley::cuda
