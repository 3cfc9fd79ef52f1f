// One block of 64 tokens of the chunked gated delta rule in the exact profile, on tensor cores.
//
// A thread block owns one value head and 32 columns of its state; the state's slice stays in
// registers as accumulators. With S at the block's start, row i of the block (WY form):
//   A_ij = beta_i e^(G_i - G_j) k_i.k_j  (j < i);   R_i = beta_i (v_i - e^(G_i) S^T k_i)
//   (I + A) U = R;   o_i = e^(G_i) S^T q_i + sum_(j <= i) e^(G_i - G_j) q_i.k_j u_j
//   at the block's end  S <- e^(G_63) S + sum_j e^(G_63 - G_j) k_j u_j^T
// Operands are bfloat16 in high and low pieces (three products). A row's sums
// run over absolute rows of the block, so they do not depend on where a segment is cut (R5).
#pragma once

#include "ops/cuda/device_math.cuh"
#include "ops/cuda/tensor_core.cuh"
#include "ops/gated_delta.h"

namespace motley::cuda {

inline constexpr int kDeltaThreads = 256;
inline constexpr int kDeltaColumns = 32;  // of the state, per thread block
inline constexpr int kDeltaMaxKey = 128;
inline constexpr int kKeyPitch = kDeltaMaxKey + 8;   // bfloat16 elements
inline constexpr int kTokenPitch = kDeltaBlock + 8;  // bfloat16 elements
inline constexpr int kColumnPitch = kDeltaColumns + 8;
inline constexpr int kSquarePitch = kDeltaBlock + 4;

struct DeltaShared {
  // Keys, then queries; the queries' place later holds P = (Q K^T) o D.
  __nv_bfloat16 k[2][kDeltaBlock][kKeyPitch];
  union {
    __nv_bfloat16 q[2][kDeltaBlock][kKeyPitch];
    __nv_bfloat16 p[2][kDeltaBlock][kTokenPitch];
  };
  // The state's slice while S is read, then A, then U.
  union {
    __nv_bfloat16 s[2][kDeltaMaxKey][kColumnPitch];
    float a[kDeltaBlock][kSquarePitch];
    __nv_bfloat16 u[2][kDeltaBlock][kColumnPitch];
  };
  float r[kDeltaBlock][kDeltaColumns + 1];  // R, then U
  float sums[kDeltaBlock];                  // G
  float decays[kDeltaBlock];                // what G sums
  float beta[kDeltaBlock];
};

// Two matrices of bfloat16 whose sum is the operand.
struct Planes {
  const __nv_bfloat16* high;
  const __nv_bfloat16* low;
  int pitch;
};

template <int kRows, int kPitch>
__device__ inline Planes planes_of(const __nv_bfloat16 (&matrix)[2][kRows][kPitch]) {
  return {&matrix[0][0][0], &matrix[1][0][0], kPitch};
}

// Columns col, col + 1 of a row.
template <int kRows, int kPitch>
__device__ inline void store_pair(__nv_bfloat16 (&matrix)[2][kRows][kPitch], int row, int col,
                                  float first, float second) {
  uint32_t high;
  uint32_t low;
  split_bf16(first, second, &high, &low);
  *reinterpret_cast<uint32_t*>(&matrix[0][row][col]) = high;
  *reinterpret_cast<uint32_t*>(&matrix[1][row][col]) = low;
}

// Operand A from a matrix stored [row][k], or [k][row] with kTransposed.
template <bool kTransposed>
__device__ inline void load_a(const __nv_bfloat16* matrix, int pitch, int row0, int k,
                              uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kTransposed) {
    load_matrix_x4_transposed(out, shared_address(matrix + (k + lane / 16 * 8 + lane % 8) * pitch +
                                                  row0 + lane / 8 % 2 * 8));
  } else {
    load_matrix_x4(out, shared_address(matrix + (row0 + lane % 16) * pitch + k + lane / 16 * 8));
  }
}

// Operand B of two neighbouring column tiles from a matrix stored [column][k], or [k][column].
template <bool kTransposed>
__device__ inline void load_b(const __nv_bfloat16* matrix, int pitch, int col0, int k,
                              uint32_t (&out)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kTransposed) {
    load_matrix_x4_transposed(
        out, shared_address(matrix + (k + lane % 16) * pitch + col0 + lane / 16 * 8));
  } else {
    load_matrix_x4(out, shared_address(matrix + (col0 + lane / 16 * 8 + lane % 8) * pitch + k +
                                       lane / 8 % 2 * 8));
  }
}

// c[n] += A[row0.. +16] . B[.., col0 + 8 n .. +8] over `depth`, a multiple of 16.
template <bool kATransposed, bool kBTransposed, int kN>
__device__ inline void multiply_add(const Planes& a, int row0, const Planes& b, int col0, int depth,
                                    float (&c)[kN][4]) {
#pragma unroll 2
  for (int k = 0; k < depth; k += 16) {
    uint32_t high[4];
    uint32_t low[4];
    load_a<kATransposed>(a.high, a.pitch, row0, k, high);
    load_a<kATransposed>(a.low, a.pitch, row0, k, low);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t x[4];
      load_b<kBTransposed>(b.high, b.pitch, col0 + 8 * n, k, x);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        mma_bf16(c[n + j], high[0], high[1], high[2], high[3], x[2 * j], x[2 * j + 1]);
        {
          mma_bf16(c[n + j], low[0], low[1], low[2], low[3], x[2 * j], x[2 * j + 1]);
        }
      }
      {
        load_b<kBTransposed>(b.low, b.pitch, col0 + 8 * n, k, x);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          mma_bf16(c[n + j], high[0], high[1], high[2], high[3], x[2 * j], x[2 * j + 1]);
        }
      }
    }
  }
}

// Where element i of accumulator tile n lies, from the tile's first row and column.
__device__ inline int fragment_row(int i) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
}
__device__ inline int fragment_col(int n, int i) {
  return 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

// A (scaled, strictly lower) to shared.a and P (scaled, lower) to shared.p.
__device__ inline void block_scores(DeltaShared& shared, int key_dim) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = warp / 2 * 16;
  const int col0 = warp % 2 * 32;
  float by_key[4][4] = {};
  float by_query[4][4] = {};
  const Planes k = planes_of(shared.k);
  multiply_add<false, false>(k, row0, k, col0, key_dim, by_key);
  multiply_add<false, false>(planes_of(shared.q), row0, k, col0, key_dim, by_query);
  __syncthreads();  // all have read S and Q: their places take A and P
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int row = row0 + fragment_row(i);
      const int col = col0 + fragment_col(n, i);
      const float at_row = shared.sums[row];
      const float first = col <= row ? expf(at_row - shared.sums[col]) : 0.0f;
      const float second = col + 1 <= row ? expf(at_row - shared.sums[col + 1]) : 0.0f;
      *reinterpret_cast<float2*>(&shared.a[row][col]) =
          make_float2(col < row ? shared.beta[row] * first * by_key[n][i] : 0.0f,
                      col + 1 < row ? shared.beta[row] * second * by_key[n][i + 1] : 0.0f);
      store_pair(shared.p, row, col, first * by_query[n][i], second * by_query[n][i + 1]);
    }
  }
}

// Sixteen rows of the substitution below, one column per thread. kAllFresh: held <= first.
template <bool kAllFresh>
__device__ inline void solve_diagonal(DeltaShared& shared, int first, int held) {
  const int col = static_cast<int>(threadIdx.x);
  float u[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) u[i] = shared.r[first + i][col];
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = j + 1; i < 16; ++i) {
      const float next = fmaf(-shared.a[first + i][first + j], u[j], u[i]);
      u[i] = kAllFresh || first + i >= held ? next : u[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) shared.r[first + i][col] = u[i];
}

// Forward substitution in shared.r, 16 rows at a time; rows below `held` are known already.
__device__ inline void block_solve(DeltaShared& shared, int held) {
  const int thread = static_cast<int>(threadIdx.x);
  const int col = thread % kDeltaColumns;
  for (int first = 0; first < kDeltaBlock; first += 16) {
    // What earlier blocks contribute: two rows per thread.
    const int row = first + thread / kDeltaColumns;
    float upper = shared.r[row][col];
    float lower = shared.r[row + 8][col];
    for (int j = 0; j < first; j += 4) {
      const float4 a0 = *reinterpret_cast<const float4*>(&shared.a[row][j]);
      const float4 a1 = *reinterpret_cast<const float4*>(&shared.a[row + 8][j]);
      const float u[4] = {shared.r[j][col], shared.r[j + 1][col], shared.r[j + 2][col],
                          shared.r[j + 3][col]};
      upper = fmaf(-a0.w, u[3], fmaf(-a0.z, u[2], fmaf(-a0.y, u[1], fmaf(-a0.x, u[0], upper))));
      lower = fmaf(-a1.w, u[3], fmaf(-a1.z, u[2], fmaf(-a1.y, u[1], fmaf(-a1.x, u[0], lower))));
    }
    if (row >= held) shared.r[row][col] = upper;
    if (row + 8 >= held) shared.r[row + 8][col] = lower;
    __syncthreads();
    if (thread < kDeltaColumns) {
      if (first >= held) {
        solve_diagonal<true>(shared, first, held);
      } else {
        solve_diagonal<false>(shared, first, held);
      }
    }
    __syncthreads();
  }
}

// U, or e^(G_last - G_j) u_j, from shared.r to the operand planes in A's place.
__device__ inline void store_updates(DeltaShared& shared, bool decayed, int last) {
  constexpr int kPairs = kDeltaColumns / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kDeltaBlock * kPairs; i += kDeltaThreads) {
    const int col = i % kPairs * 2;
    const int row = i / kPairs;
    const float factor = decayed && row <= last ? expf(shared.sums[last] - shared.sums[row]) : 1.0f;
    store_pair(shared.u, row, col, factor * shared.r[row][col], factor * shared.r[row][col + 1]);
  }
}

// The slice of S that a warp holds: rows [16 warp, +16) by 32 columns.
struct StateSlice {
  float c[4][4];
};

__device__ inline void fold_block(DeltaShared& shared, StateSlice& state, int rows, int key_dim) {
  store_updates(shared, true, rows - 1);
  __syncthreads();
  const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
  if (row0 < key_dim) {
    const float decay = expf(shared.sums[rows - 1]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.c[n][i] *= decay;
    }
    multiply_add<true, true>(planes_of(shared.k), row0, planes_of(shared.u), 0, kDeltaBlock,
                             state.c);
  }
  __syncthreads();
}

}  // namespace motley::cuda
