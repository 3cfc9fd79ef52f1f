#include "ops/cuda/matvec.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/matvec_integer.h"
#include "ops/cuda/matvec_kernel.cuh"

namespace motley::cuda {
namespace {

bool is_aligned(const WeightPlane& plane, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(plane.data) % static_cast<uintptr_t>(bytes) == 0 &&
         plane.row_bytes % bytes == 0;
}

// More than 48 KiB of shared memory has to be asked for; cheap, and per device.
template <typename Kernel>
void allow_shared(CudaStream& stream, Kernel* kernel, int bytes) {
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "matvec");
}

template <int kBits, int kTiles, int kPieces>
void launch(CudaStream& stream, const MatvecCall& call, dim3 grid) {
  constexpr int kBytes = matvec_shared_bytes<kBits>();
  auto* kernel = matvec_kernel<kBits, kTiles, kPieces>;
  allow_shared(stream, kernel, kBytes);
  launch_dependent(stream, kernel, grid, 32 * kMatvecWarps, kBytes, "linear (rows)", call);
}

// Rows of W that a block takes at a time.
struct TileRows {
  int rows = kMatvecTileRows;
  bool large = false;
};

template <int kBits>
void launch_rows(CudaStream& stream, const MatvecShape& shape, const MatvecCall& call,
                 const IntegerRows& x, TileRows tile, int max_count) {
  const int row_tiles = max_count <= 8 ? 1 : 2;
  const dim3 grid(static_cast<unsigned>(call.tiles), grid_of(max_count, 8 * row_tiles));
  if constexpr (kBits != kPlainBits) {
    if (shape.is_integer()) {
      return launch_integer<kBits>(stream, call, x, grid, row_tiles, tile.large);
    }
  }
  if (shape.pieces() == 1) {
    if (row_tiles == 1) return launch<kBits, 1, 1>(stream, call, grid);
    return launch<kBits, 2, 1>(stream, call, grid);
  }
  if (row_tiles == 1) return launch<kBits, 1, 3>(stream, call, grid);
  launch<kBits, 2, 3>(stream, call, grid);
}

void launch_format(CudaStream& stream, const MatvecShape& shape, const MatvecCall& call,
                   const IntegerRows& x, TileRows tile, int max_count) {
  const int bits = shape.format == WeightFormat::kBf16 ? kPlainBits : shape.affine.bits;
  switch (bits) {
    case 2:
      return launch_rows<2>(stream, shape, call, x, tile, max_count);
    case 3:
      return launch_rows<3>(stream, shape, call, x, tile, max_count);
    case 4:
      return launch_rows<4>(stream, shape, call, x, tile, max_count);
    case 5:
      return launch_rows<5>(stream, shape, call, x, tile, max_count);
    case 6:
      return launch_rows<6>(stream, shape, call, x, tile, max_count);
    case 8:
      return launch_rows<8>(stream, shape, call, x, tile, max_count);
    default:
      return launch_rows<kPlainBits>(stream, shape, call, x, tile, max_count);
  }
}

// Large tiles where every multiprocessor gets one and has the shared memory for two.
TileRows choose_tile(const CudaStream& stream, const MatvecShape& shape, int64_t rows) {
  if (!shape.is_integer()) return {};
  const int capability = stream.compute_capability();
  const bool data_centre = capability == 80 || capability == 90 || capability == 100;
  const int large_rows = integer_tile_rows(shape.affine.bits, true);
  if (data_centre && rows >= int64_t{large_rows} * stream.multiprocessors()) {
    return {large_rows, true};
  }
  return {integer_tile_rows(shape.affine.bits, false), false};
}

MatvecCall make_call(const MatvecShape& shape, const MatvecRows& x) {
  MatvecCall call{};
  call.x = x.pieces;
  call.cols = static_cast<int>(shape.cols);
  call.group_size = shape.affine.group_size;
  call.group_blocks_log2 = shape.affine.group_size == 32   ? 0
                           : shape.affine.group_size == 64 ? 1
                                                           : 2;
  call.scales_are_f16 = shape.scale_dtype == DType::kF16;
  return call;
}

}  // namespace

bool matvec_takes(const WeightMatrix& weights) {
  if (!is_aligned(weights.codes, 16)) return false;
  if (weights.format == WeightFormat::kBf16) return true;
  if (weights.format != WeightFormat::kMlxAffine) return false;
  const bool short_scales =
      weights.scale_dtype == DType::kBf16 || weights.scale_dtype == DType::kF16;
  // A stage of 256 columns copies its scales of a row in one piece.
  const int64_t piece = 512 / weights.affine.group_size;
  return short_scales && is_aligned(weights.scales, piece) && is_aligned(weights.biases, piece);
}

MatvecShape matvec_shape(const WeightMatrix& weights, NumericProfile profile) {
  return {weights.format, weights.affine, weights.scale_dtype, weights.cols, profile};
}

MatvecJob matvec_job(const WeightMatrix& weights, const TensorView& y) {
  MatvecJob job;
  job.codes = reinterpret_cast<const uint8_t*>(weights.codes.data);
  job.scales = reinterpret_cast<const uint8_t*>(weights.scales.data);
  job.biases = reinterpret_cast<const uint8_t*>(weights.biases.data);
  job.code_stride = weights.codes.row_bytes;
  job.scale_stride = weights.scales.row_bytes;
  job.y = reinterpret_cast<float*>(y.data);
  job.y_stride = y.row_stride;
  job.rows = static_cast<int32_t>(weights.rows);
  return job;
}

MatvecRows matvec_rows(CudaStream& stream, const MatvecShape& shape, const ConstTensorView& x,
                       const RowGate& gate) {
  MatvecRows rows;
  if (shape.is_integer()) {
    rows.fixed = prepare_integer_rows(stream, x, gate, shape.affine.group_size);
  } else {
    rows.pieces = prepare_rows(stream, x, gate, shape.pieces(), RowOrder::kUnitMajor);
  }
  return rows;
}

bool same_rows(const MatvecShape& a, const MatvecShape& b) {
  if (a.is_integer() != b.is_integer() || a.profile != b.profile) return false;
  return !a.is_integer() || a.affine.group_size == b.affine.group_size;
}

void run_matvec(CudaStream& stream, const MatvecShape& shape, const MatvecRows& x,
                std::span<const MatvecJob> jobs) {
  int64_t rows = 0;
  for (const MatvecJob& job : jobs) rows += job.rows;
  const TileRows tile = choose_tile(stream, shape, rows);
  MatvecCall call = make_call(shape, x);
  int64_t tiles = 0;
  int max_count = 0;
  for (const MatvecJob& job : jobs) {
    MatvecJob& copy = call.inline_jobs[call.job_count++];
    copy = job;
    copy.first_tile = static_cast<int32_t>(tiles);
    tiles += divide_up(job.rows, tile.rows);
    max_count = job.count > max_count ? job.count : max_count;
  }
  call.tiles = static_cast<int>(tiles);
  if (tiles > 0 && max_count > 0) launch_format(stream, shape, call, x.fixed, tile, max_count);
}

void run_matvec_uniform(CudaStream& stream, const MatvecShape& shape, const MatvecRows& x,
                        const MatvecJob* jobs, int64_t job_count, int64_t rows, int max_count) {
  if (job_count == 0 || max_count == 0) return;
  const TileRows tile = choose_tile(stream, shape, job_count * rows);
  MatvecCall call = make_call(shape, x);
  call.jobs = jobs;
  call.job_count = static_cast<int>(job_count);
  call.tiles_per_job = static_cast<int>(divide_up(rows, tile.rows));
  call.tiles = call.tiles_per_job * call.job_count;
  launch_format(stream, shape, call, x.fixed, tile, max_count);
}

}  // namespace motley::cuda
