#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/gemm.h"
#include "ops/cuda/matvec.h"
#include "ops/cuda/moe_kernels.h"
#include "ops/cuda/scalar_linear.h"

namespace motley::cuda {
namespace {

// The pairs of one role, expert after expert: pair i of the list is row i of the hidden buffers.
// Each expert begins at a multiple of an alignment; what fills the gaps is computed by some kernels
// and used by none.
struct PairList {
  struct Item {
    const ExpertWeights* weights;
    int32_t first;
    int32_t count;
  };
  std::vector<Item> items;
  std::vector<int32_t> x_rows;
  std::vector<int32_t> pairs;
  int max_count = 0;
};

PairList list_pairs(std::span<const ExpertWork> work, int experts_per_token, int64_t row_begin,
                    int64_t row_end, int32_t align) {
  PairList list;
  for (const ExpertWork& item : work) {
    const auto used = static_cast<int64_t>(list.pairs.size());
    list.pairs.resize(static_cast<size_t>(divide_up(used, align) * align));
    list.x_rows.resize(list.pairs.size(), static_cast<int32_t>(row_begin));
    const auto first = static_cast<int32_t>(list.pairs.size());
    for (const int32_t pair : item.pairs) {
      const int32_t row = pair / experts_per_token;
      if (row < row_begin || row >= row_end) continue;
      list.x_rows.push_back(row);
      list.pairs.push_back(pair);
    }
    const int32_t count = static_cast<int32_t>(list.pairs.size()) - first;
    if (count == 0) continue;
    list.items.push_back({item.weights, first, count});
    list.max_count = std::max(list.max_count, count);
  }
  return list;
}

// The ids of the list in device memory.
struct PairIds {
  const int32_t* x_rows;
  const int32_t* pairs;
};

// What gate and up write: [pairs, intermediate].
struct PairBuffers {
  TensorView gate;
  TensorView up;
};

PairIds upload_ids(CudaStream& stream, const PairList& list) {
  std::vector<int32_t> ids = list.x_rows;
  ids.insert(ids.end(), list.pairs.begin(), list.pairs.end());
  const int32_t* on_device = stream.upload<int32_t>(ids);
  return {on_device, on_device + list.pairs.size()};
}

bool one_shape(const PairList& list, bool (*takes)(const WeightMatrix&)) {
  const ExpertWeights& first = *list.items[0].weights;
  const auto same = [takes](const WeightMatrix& a, const WeightMatrix& b) {
    constexpr NumericProfile kAny = NumericProfile::kFast;
    return takes(b) && a.rows == b.rows && a.codes.row_bytes == b.codes.row_bytes &&
           a.scales.row_bytes == b.scales.row_bytes &&
           matvec_shape(a, kAny) == matvec_shape(b, kAny);
  };
  for (const PairList::Item& item : list.items) {
    if (!same(first.gate, item.weights->gate) || !same(first.gate, item.weights->up) ||
        !same(first.down, item.weights->down)) {
      return false;
    }
  }
  return true;
}

// Gate and up of every expert, then down of every expert.
std::vector<MatvecJob> list_jobs(const PairList& list, const PairIds& ids,
                                 const PairBuffers& buffers, const TensorView& pair_out) {
  std::vector<MatvecJob> jobs;
  const auto add = [&](const WeightMatrix& weights, const TensorView& y,
                       const PairList::Item& item) -> MatvecJob& {
    jobs.push_back(matvec_job(weights, y));
    jobs.back().count = item.count;
    jobs.back().first_x = item.first;
    jobs.back().first_out = item.first;
    return jobs.back();
  };
  for (const PairList::Item& item : list.items) {
    add(item.weights->gate, buffers.gate, item).x_ids = ids.x_rows + item.first;
    add(item.weights->up, buffers.up, item).x_ids = ids.x_rows + item.first;
  }
  for (const PairList::Item& item : list.items) {
    add(item.weights->down, pair_out, item).out_ids = ids.pairs + item.first;
  }
  return jobs;
}

// Jobs and the ids that they point to, in one copy: a copy costs a decode step as much as a kernel.
const MatvecJob* upload_jobs(CudaStream& stream, const PairList& list, const PairBuffers& buffers,
                             const TensorView& pair_out) {
  const size_t job_bytes = 3 * list.items.size() * sizeof(MatvecJob);
  const size_t id_bytes = list.pairs.size() * sizeof(int32_t);
  const auto fill = [&](const CudaStream::UploadPlace& place) {
    const auto* ids = reinterpret_cast<const int32_t*>(place.device + job_bytes);
    const std::vector<MatvecJob> jobs =
        list_jobs(list, {ids, ids + list.pairs.size()}, buffers, pair_out);
    std::memcpy(place.host, jobs.data(), job_bytes);
    std::memcpy(place.host + job_bytes, list.x_rows.data(), id_bytes);
    std::memcpy(place.host + job_bytes + id_bytes, list.pairs.data(), id_bytes);
  };
  return reinterpret_cast<const MatvecJob*>(stream.upload_filled(job_bytes + 2 * id_bytes, fill));
}

void experts_rows(CudaStream& stream, const ConstTensorView& x, const PairList& list,
                  const PairBuffers& buffers, const TensorView& pair_out, SwigluParams swiglu,
                  NumericProfile profile) {
  const MatvecJob* jobs = upload_jobs(stream, list, buffers, pair_out);
  const auto count = static_cast<int64_t>(list.items.size());
  const ExpertWeights& first = *list.items[0].weights;
  const MatvecShape in_shape = matvec_shape(first.gate, profile);
  const MatvecShape out_shape = matvec_shape(first.down, profile);
  const MatvecRows in = matvec_rows(stream, in_shape, x, {});
  run_matvec_uniform(stream, in_shape, in, jobs, 2 * count, first.gate.rows, list.max_count);
  const MatvecRows hidden = matvec_rows(stream, out_shape, buffers.up, {buffers.gate, swiglu});
  run_matvec_uniform(stream, out_shape, hidden, jobs + 2 * count, count, first.down.rows,
                     list.max_count);
}

std::vector<GemmGroup> list_groups(const PairList& list) {
  std::vector<GemmGroup> groups(list.items.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].first_x = list.items[i].first;
    groups[i].first_out = list.items[i].first;
    groups[i].count = list.items[i].count;
  }
  return groups;
}

// Gate and up in one product, which leaves the rows that down takes.
PreparedRows gated_rows(CudaStream& stream, const PairList& list, const PreparedRows& x,
                        SwigluParams swiglu) {
  std::vector<GemmGroup> groups = list_groups(list);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].weights = list.items[i].weights->gate;
    groups[i].up = list.items[i].weights->up;
  }
  return run_gemm_gated(stream, groups, x, static_cast<int64_t>(list.pairs.size()), swiglu);
}

PreparedRows separate_rows(CudaStream& stream, const PairList& list, const PreparedRows& x,
                           const PairBuffers& buffers, SwigluParams swiglu) {
  std::vector<GemmGroup> groups;
  for (const PairList::Item& item : list.items) {
    groups.push_back(
        {item.weights->gate, {}, buffers.gate, nullptr, item.first, item.first, item.count});
    groups.push_back(
        {item.weights->up, {}, buffers.up, nullptr, item.first, item.first, item.count});
  }
  run_gemm_groups(stream, groups, x);
  const RowOrder order = gemm_order(stream, list.items[0].weights->down);
  return prepare_rows(stream, buffers.up, {buffers.gate, swiglu}, 1, order);
}

PairBuffers make_buffers(CudaStream& stream, const PairList& list) {
  const auto pairs = static_cast<int64_t>(list.pairs.size());
  const int64_t intermediate = list.items[0].weights->gate.rows;
  return {scratch_view(stream, DType::kF32, {pairs, intermediate}),
          scratch_view(stream, DType::kF32, {pairs, intermediate})};
}

void experts_tiles(CudaStream& stream, const ConstTensorView& x, const PairList& list,
                   const TensorView& pair_out, SwigluParams swiglu) {
  const PairIds ids = upload_ids(stream, list);
  const auto pairs = static_cast<int64_t>(list.pairs.size());
  const ExpertWeights& first = *list.items[0].weights;
  const PreparedRows in = gather_rows(stream, x, ids.x_rows, pairs, gemm_order(stream, first.gate));
  const bool gated = gemm_takes_gated(stream, first.gate) && gemm_takes_gated(stream, first.down);
  const PreparedRows hidden =
      gated ? gated_rows(stream, list, in, swiglu)
            : separate_rows(stream, list, in, make_buffers(stream, list), swiglu);
  std::vector<GemmGroup> groups = list_groups(list);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].weights = list.items[i].weights->down;
    groups[i].y = pair_out;
    groups[i].out_ids = ids.pairs + list.items[i].first;
  }
  run_gemm_groups(stream, groups, hidden);
}

// Any format, any alignment, mixed shapes.
void experts_scalar(CudaStream& stream, const ConstTensorView& x, const PairList& list,
                    const PairBuffers& buffers, const TensorView& pair_out, SwigluParams swiglu) {
  const PairIds ids = upload_ids(stream, list);
  const NormOps norm = norm_ops();
  for (const PairList::Item& item : list.items) {
    const TensorView gate = buffers.gate.slice_rows(item.first, item.count);
    const TensorView up = buffers.up.slice_rows(item.first, item.count);
    const int32_t* rows = ids.x_rows + item.first;
    run_scalar_linear(stream, item.weights->gate, x, gate, item.count, rows, nullptr);
    run_scalar_linear(stream, item.weights->up, x, up, item.count, rows, nullptr);
    norm.silu_multiply(stream, gate, up, swiglu, up);
    run_scalar_linear(stream, item.weights->down, up, pair_out, item.count, nullptr,
                      ids.pairs + item.first);
  }
}

template <NumericProfile kProfile>
void experts(Stream& any, const ConstTensorView& x, RowCounts counts, ExpertParams params,
             std::span<const ExpertWork> work, const TensorView& pair_out) {
  CudaStream& stream = cuda_stream(any);
  const int64_t limits[3] = {0, counts.decode, counts.total()};
  for (int role = 0; role < 2; ++role) {
    Arena::Scope scope(stream.scratch());
    const bool tiles = role == 1 && kProfile == NumericProfile::kFast;
    const PairList list = list_pairs(work, params.experts_per_token, limits[role], limits[role + 1],
                                     tiles ? kGemmGroupAlign : 1);
    if (list.items.empty()) continue;
    const ConstTensorView rows = x.slice_rows(0, limits[role + 1]);
    if (!one_shape(list, tiles ? gemm_takes : matvec_takes)) {
      experts_scalar(stream, rows, list, make_buffers(stream, list), pair_out, params.swiglu);
    } else if (tiles) {
      experts_tiles(stream, rows, list, pair_out, params.swiglu);
    } else {
      experts_rows(stream, rows, list, make_buffers(stream, list), pair_out, params.swiglu,
                   kProfile);
    }
  }
}

}  // namespace

MoeOps moe_ops(NumericProfile profile) {
  if (profile == NumericProfile::kExact) {
    return {route_softmax, experts<NumericProfile::kExact>, combine, route_sigmoid};
  }
  return {route_softmax, experts<NumericProfile::kFast>, combine, route_sigmoid};
}

}  // namespace motley::cuda
