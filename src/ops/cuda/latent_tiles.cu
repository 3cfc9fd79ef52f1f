// Attention over bfloat16 latent rows on tensor cores: the heads of a row share every key, so they
// are the rows of the products.
//
// A thread block takes kHeads heads of one row over a chunk of its keys, tile by tile with a
// running softmax; the next tile's rows are gathered while one is multiplied. Tiles are cut by the
// number of a key among those that the row sees (R5).
#include "ops/cuda/latent_keys.cuh"
#include "ops/cuda/tensor_core.cuh"

namespace motley::cuda {
namespace {

constexpr int kMaxWidth = 576;
constexpr int kMaxRank = 512;
constexpr int kPitch = 2 * kMaxWidth + 16;  // bytes of a row; odd in units of 16: no conflicts

// kWarps: 8 where shared memory has room for 64 keys twice, else 4.
template <int kWarpsOf>
struct Tile {
  static constexpr int kWarps = kWarpsOf;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kHeads = 4 * kWarps;
  static constexpr int kKeys = 8 * kWarps;
  static constexpr int kHeadTiles = kHeads / 16;
  static constexpr int kDims = kMaxRank / kWarps;  // of the result, per warp
  static constexpr int kDimTiles = kDims / 8;
  static constexpr int kEach = kKeys / 8;  // keys of a thread in the softmax, 8 threads a head

  struct Shared {
    uint8_t keys[2][kKeys][kPitch];
    uint8_t q[kHeads][kPitch];
    float scores[2][kHeads][kKeys + 4];  // by half of the row's elements
    __nv_bfloat16 p[kHeads][kKeys + 8];
    const std::byte* rows[2][kKeys];
    float rescale[kHeads];
    float total[kHeads];
    float highest[kHeads];
  };
};

template <typename T>
__device__ void load_queries(const LatentCall& call, const LatentRow& row, int first_head,
                             typename T::Shared& shared) {
  constexpr float kLog2E = 1.44269504088896341f;
  const float scale = call.scale * kLog2E;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int head = static_cast<int>(threadIdx.x) / 32; head < T::kHeads; head += T::kWarps) {
    const bool inside = first_head + head < call.heads;
    const float* q =
        call.q + row.row * call.q_stride + int64_t{inside ? first_head + head : 0} * call.width;
#pragma unroll 3
    for (int at = 2 * lane; at < call.width; at += 64) {
      const uint32_t pair = inside ? pack_bf16(q[at] * scale, q[at + 1] * scale) : 0u;
      *reinterpret_cast<uint32_t*>(&shared.q[head][2 * at]) = pair;
    }
  }
}

// The thread's key of a tile, in the steps of its look-up: -1 when there is none.
template <typename T>
__device__ int find_row(const LatentKeys& keys, const LatentChunk& chunk, int tile) {
  const int thread = static_cast<int>(threadIdx.x);
  const int key = tile * T::kKeys + thread;
  return thread < T::kKeys && key < chunk.count ? keys.row_of(chunk.first + key) : -1;
}

template <typename T>
__device__ void keep_address(const std::byte* address, int tile, typename T::Shared& shared) {
  if (threadIdx.x < T::kKeys) shared.rows[tile % 2][threadIdx.x] = address;
}

// Zeros for keys that are not there. A warp copies whole rows.
template <typename T>
__device__ void issue_tile(const LatentCall& call, const std::byte* filler, int tile,
                           typename T::Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunks = call.width / 8;
  for (int key = static_cast<int>(threadIdx.x) / 32; key < T::kKeys; key += T::kWarps) {
    const std::byte* row = shared.rows[tile % 2][key];
    uint8_t* target = shared.keys[tile % 2][key];
#pragma unroll
    for (int at = lane; at < kMaxWidth / 8; at += 32) {
      if (at >= chunks) break;
      copy_async_16(target + 16 * at, row == nullptr ? filler : row + 16 * at,
                    row == nullptr ? 0 : 16);
    }
  }
}

// Scores of 16 keys by half of the elements, a warp each.
template <typename T>
__device__ void score_tile(const LatentCall& call, int tile, typename T::Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int key0 = warp % (T::kWarps / 2) * 16;
  const int half = warp / (T::kWarps / 2);
  const int steps = call.width / 16;
  const int first = half == 0 ? 0 : (steps + 1) / 2;
  const int last = half == 0 ? (steps + 1) / 2 : steps;
  float c[T::kHeadTiles][2][4] = {};
  const uint32_t q = shared_address(&shared.q[lane % 16][lane / 16 * 16]);
  const uint32_t k =
      shared_address(&shared.keys[tile % 2][key0 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 16]);
#pragma unroll 4
  for (int step = first; step < last; ++step) {
    const auto at = static_cast<uint32_t>(32 * step);
    uint32_t b[4];
    load_matrix_x4(b, k + at);
#pragma unroll
    for (int m = 0; m < T::kHeadTiles; ++m) {
      uint32_t a[4];
      load_matrix_x4(a, q + at + static_cast<uint32_t>(m * 16 * kPitch));
      mma_bf16(c[m][0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(c[m][1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
#pragma unroll
  for (int m = 0; m < T::kHeadTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int head = 16 * m + lane / 4 + 4 * i;
        const int key = key0 + 8 * n + lane % 4 * 2;
        *reinterpret_cast<float2*>(&shared.scores[half][head][key]) =
            make_float2(c[m][n][i], c[m][n][i + 1]);
      }
    }
  }
}

// The running softmax of a head, the same in its eight threads.
struct Running {
  float highest = -INFINITY;
  float total = 0;
};

template <typename T>
__device__ void softmax_tile(int tile, Running& running, typename T::Shared& shared) {
  const int head = static_cast<int>(threadIdx.x) / 8;
  const int key0 = static_cast<int>(threadIdx.x) % 8 * T::kEach;
  float score[T::kEach];
  float highest = running.highest;
#pragma unroll
  for (int e = 0; e < T::kEach; ++e) {
    const int key = key0 + e;
    const float sum = shared.scores[0][head][key] + shared.scores[1][head][key];
    score[e] = shared.rows[tile % 2][key] == nullptr ? -INFINITY : sum;
    highest = fmaxf(highest, score[e]);
  }
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, offset));
  }
  const float base = highest == -INFINITY ? 0.0f : highest;
  const float rescale = exp2f(running.highest - base);
  float sum = 0;
#pragma unroll
  for (int e = 0; e < T::kEach; e += 2) {
    const float low = exp2f(score[e] - base);
    const float high = exp2f(score[e + 1] - base);
    sum += low + high;
    *reinterpret_cast<uint32_t*>(&shared.p[head][key0 + e]) = pack_bf16(low, high);
  }
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
  running.total = running.total * rescale + sum;
  running.highest = highest;
  if (threadIdx.x % 8 == 0) shared.rescale[head] = rescale;
}

template <typename T>
using Out = float[T::kHeadTiles][T::kDimTiles][4];

// out = rescale * out + P V, the warp's dims.
template <typename T>
__device__ void add_values(const LatentCall& call, int tile, typename T::Shared& shared,
                           Out<T>& out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim0 = static_cast<int>(threadIdx.x) / 32 * T::kDims;
#pragma unroll
  for (int m = 0; m < T::kHeadTiles; ++m) {
    const float low = shared.rescale[16 * m + lane / 4];
    const float high = shared.rescale[16 * m + lane / 4 + 8];
#pragma unroll
    for (int n = 0; n < T::kDimTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[m][n][i] *= i < 2 ? low : high;
    }
  }
#pragma unroll
  for (int step = 0; step < T::kKeys / 16; ++step) {
    uint32_t a[T::kHeadTiles][4];
#pragma unroll
    for (int m = 0; m < T::kHeadTiles; ++m) {
      load_matrix_x4(a[m],
                     shared_address(&shared.p[16 * m + lane % 16][16 * step + lane / 16 * 8]));
    }
#pragma unroll
    for (int n = 0; n < T::kDimTiles; n += 2) {
      if (dim0 + 8 * n >= call.rank) break;
      uint32_t b[4];
      load_matrix_x4_transposed(
          b,
          shared_address(
              &shared.keys[tile % 2][16 * step + lane % 16][2 * (dim0 + 8 * n + lane / 16 * 8)]));
#pragma unroll
      for (int m = 0; m < T::kHeadTiles; ++m) {
        mma_bf16(out[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
        mma_bf16(out[m][n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
      }
    }
  }
}

template <typename T>
__device__ void store_out(const LatentCall& call, const LatentTarget& target, int first_head,
                          const typename T::Shared& shared, const Out<T>& out) {
  constexpr float kLn2 = 0.69314718055994531f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim0 = static_cast<int>(threadIdx.x) / 32 * T::kDims + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < T::kHeadTiles; ++m) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int head = 16 * m + lane / 4 + 4 * i;
      if (first_head + head >= call.heads) continue;
      const float total = shared.total[head];
      const float scale = total > 0 ? 1.0f / total : 0.0f;
      float* to = target.out + int64_t{first_head + head} * call.rank + dim0;
#pragma unroll
      for (int n = 0; n < T::kDimTiles; ++n) {
        if (dim0 + 8 * n >= call.rank) break;
        to[8 * n] = out[m][n][i] * scale;
        to[8 * n + 1] = out[m][n][i + 1] * scale;
      }
    }
  }
  const int head = static_cast<int>(threadIdx.x);
  if (head < T::kHeads && first_head + head < call.heads) {
    const float total = shared.total[head];
    target.lse[first_head + head] =
        total > 0 ? shared.highest[head] * kLn2 + logf(total) : -INFINITY;
  }
}

// Grid: (chunks, groups of heads, rows).
template <int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 1)
    latent_tiles_kernel(const __grid_constant__ LatentCall call) {
  using T = Tile<kWarps>;
  extern __shared__ __align__(16) uint8_t storage[];
  auto& shared = *reinterpret_cast<typename T::Shared*>(storage);
  const LatentRow row = call.rows[blockIdx.z];
  const LatentKeys keys = find_latent_keys(call, row);
  const LatentChunk chunk = find_latent_chunk(call, static_cast<int>(blockIdx.x), keys.count);
  const int first_head = static_cast<int>(blockIdx.y) * T::kHeads;
  const auto* filler = reinterpret_cast<const std::byte*>(call.rows);
  const int tiles = (chunk.count + T::kKeys - 1) / T::kKeys;
  for (int tile = 0; tile < 2; ++tile) {
    keep_address<T>(keys.address(find_row<T>(keys, chunk, tile)), tile, shared);
  }
  __syncthreads();
  for (int tile = 0; tile < 2; ++tile) {
    if (tile < tiles) issue_tile<T>(call, filler, tile, shared);
    copy_async_commit();
  }
  load_queries<T>(call, row, first_head, shared);
  Running running;
  Out<T> out = {};
  for (int tile = 0; tile < tiles; ++tile) {
    // Both steps of the look-up for the tile after the next travel behind the work.
    const int next_row = find_row<T>(keys, chunk, tile + 2);
    copy_async_wait<1>();
    __syncthreads();
    score_tile<T>(call, tile, shared);
    const std::byte* next = keys.address(next_row);
    __syncthreads();
    softmax_tile<T>(tile, running, shared);
    __syncthreads();
    keep_address<T>(next, tile, shared);
    add_values<T>(call, tile, shared, out);
    __syncthreads();
    if (tile + 2 < tiles) issue_tile<T>(call, filler, tile + 2, shared);
    copy_async_commit();
  }
  if (threadIdx.x % 8 == 0) {
    shared.total[threadIdx.x / 8] = running.total;
    shared.highest[threadIdx.x / 8] = running.highest;
  }
  __syncthreads();
  const LatentTarget target =
      find_latent_target(call, row, blockIdx.z, static_cast<int>(blockIdx.x));
  store_out<T>(call, target, first_head, shared, out);
}

template <int kWarps>
void launch(CudaStream& stream, const LatentCall& call, int64_t rows) {
  using T = Tile<kWarps>;
  constexpr int kBytes = sizeof(typename T::Shared);
  auto* kernel = latent_tiles_kernel<kWarps>;
  stream.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "latent.attend");
  const dim3 grid(static_cast<unsigned>(call.chunks), grid_of(call.heads, T::kHeads),
                  static_cast<unsigned>(rows));
  kernel<<<grid, T::kThreads, kBytes, stream.handle()>>>(call);
  stream.check_launch("latent.attend");
}

}  // namespace

bool latent_tiles_take(const CudaStream&, const LatentCall& call) {
  return call.is_bf16 && call.width % 16 == 0 && call.width <= kMaxWidth && call.rank % 16 == 0 &&
         call.rank <= kMaxRank && call.rank <= call.width;
}

void latent_tiles(CudaStream& stream, const LatentCall& call, int64_t rows) {
  const int capability = stream.compute_capability();
  if (capability == 90 || capability == 100) return launch<8>(stream, call, rows);
  launch<4>(stream, call, rows);
}

}  // namespace motley::cuda
