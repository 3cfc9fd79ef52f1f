// Expert products in two parallel regions: gate and up with the activation between them, then down.
// A piece of the first region covers whole groups of the hidden layer, so it quantises what it
// computed and the second region finds its input ready.
#include <algorithm>
#include <memory>

#include "ops/cpu/activation_packs.h"
#include "ops/cpu/linear_ops.h"
#include "ops/cpu/row_work.h"

namespace motley {
namespace {

// Rows of one role, quantised once for all experts.
struct RoleInput {
  ActivationPacks x;
  RoleArithmetic arithmetic;
  int64_t first_row = 0;
};

// The pairs of one expert whose rows have one role.
struct ExpertShare {
  const ExpertWeights* weights = nullptr;
  ActivationPacks x;
  std::span<float* const> hidden_rows;
  ActivationPacks hidden;
  std::span<float* const> y;
  bool fast = false;
  int64_t hidden_end = 0;  // pieces of the first region up to and with this share
  int64_t output_end = 0;  // pieces of the second
};

struct Call {
  const LinearKernels& kernels;
  Stream& stream;
  ExpertParams params;
  const TensorView& pair_out;
  int64_t hidden_rows = kBlockRows;  // of a piece of the first region
  int64_t output_rows = kBlockRows;  // of the second
};

struct WorkerMemory {
  std::byte* kernel_scratch;
  std::byte* tiles;  // of x or of the hidden rows
  float** up_rows;
};

RoleInput pack_role(const LinearKernels& kernels, RoleArithmetic arithmetic, Stream& stream,
                    std::span<const float* const> rows, int64_t first_row, int64_t cols,
                    std::span<const ExpertWork> work) {
  ActivationPacks packs(rows, cols, arithmetic);
  for (const ExpertWork& item : work) {
    packs.require(kernels, stream, item.weights->gate);
    packs.require(kernels, stream, item.weights->up);
  }
  packs.pack(kernels, stream);
  return {packs, arithmetic, first_row};
}

void check_item(const ExpertWork& item, int64_t hidden_size, const TensorView& pair_out) {
  const ExpertWeights& weights = *item.weights;
  MOTLEY_CHECK(weights.gate.cols == hidden_size && weights.up.cols == hidden_size &&
                   weights.up.rows == weights.gate.rows && weights.down.cols == weights.gate.rows &&
                   weights.down.rows == pair_out.cols(),
               "expert shapes disagree");
}

// Output rows of a piece of work: many, so that laying out x for it costs little, but every thread
// gets dozens of pieces.
int64_t piece_rows(std::span<const ExpertWork> work, int threads,
                   WeightMatrix ExpertWeights::* matrix) {
  constexpr int64_t kPiecesPerThread = 32;
  constexpr int64_t kMostBlocks = 8;
  int64_t blocks = 0;
  for (const ExpertWork& item : work) blocks += blocks_of((item.weights->*matrix).rows, kBlockRows);
  return kBlockRows * std::clamp<int64_t>(blocks / (kPiecesPerThread * threads), 1, kMostBlocks);
}

ExpertShare make_share(const Call& call, const ExpertWeights& weights, const RoleInput& role,
                       std::span<const int32_t> pairs) {
  Arena& arena = call.stream.scratch();
  const size_t size = pairs.size();
  const auto count = static_cast<int64_t>(size);
  const int64_t intermediate = weights.down.cols;
  auto* rows = arena.allocate<int32_t>(count);
  auto* y = arena.allocate<float*>(count);
  auto* hidden_rows = arena.allocate<float*>(count);
  auto* hidden = arena.allocate<float>(count * intermediate);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t pair = pairs[static_cast<size_t>(i)];
    rows[i] = pair / call.params.experts_per_token - static_cast<int32_t>(role.first_row);
    y[i] = call.pair_out.row<float>(pair);
    hidden_rows[i] = hidden + i * intermediate;
  }
  ExpertShare share{&weights,
                    role.x.gather(call.stream, {rows, size}),
                    {hidden_rows, size},
                    ActivationPacks({hidden_rows, size}, intermediate, role.arithmetic),
                    {y, size},
                    role.arithmetic.fast};
  share.hidden.require(call.kernels, call.stream, weights.down);
  share.hidden.clear();
  return share;
}

// One share per expert and role that has pairs.
std::span<ExpertShare> make_shares(const Call& call, std::span<const RoleInput> roles,
                                   std::span<const ExpertWork> work) {
  auto* shares =
      call.stream.scratch().allocate<ExpertShare>(static_cast<int64_t>(work.size() * roles.size()));
  size_t count = 0;
  int64_t hidden_end = 0;
  int64_t output_end = 0;
  for (const ExpertWork& item : work) {
    const auto first_prefill =
        static_cast<int32_t>(roles[1].first_row * call.params.experts_per_token);
    const auto split =
        std::lower_bound(item.pairs.begin(), item.pairs.end(), first_prefill) - item.pairs.begin();
    for (const RoleInput& role : roles) {
      const auto pairs = &role == roles.data() ? item.pairs.first(static_cast<size_t>(split))
                                               : item.pairs.subspan(static_cast<size_t>(split));
      if (pairs.empty()) continue;
      ExpertShare* share =
          std::construct_at(shares + count, make_share(call, *item.weights, role, pairs));
      share->hidden_end = hidden_end += blocks_of(item.weights->gate.rows, call.hidden_rows);
      share->output_end = output_end += blocks_of(item.weights->down.rows, call.output_rows);
      ++count;
    }
  }
  return {shares, count};
}

// The share that piece `piece` belongs to, and the first row of its block.
struct Piece {
  const ExpertShare* share;
  int64_t begin;
};
Piece find_piece(std::span<const ExpertShare> shares, int64_t ExpertShare::* end, int64_t piece,
                 int64_t rows) {
  const auto share = std::upper_bound(
      shares.begin(), shares.end(), piece,
      [end](int64_t value, const ExpertShare& candidate) { return value < candidate.*end; });
  const int64_t first = share == shares.begin() ? 0 : *std::prev(share).*end;
  return {&*share, (piece - first) * rows};
}

// The start of rows that are read next, from memory that no prefetcher can guess.
void fetch_start(const WeightMatrix& weights, int64_t first_row) {
  constexpr int64_t kBytes = 4096;
  constexpr int64_t kLine = 64;
  const auto fetch = [first_row](const WeightPlane& plane, int64_t bytes) {
    const std::byte* start = plane.data + first_row * plane.row_bytes;
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(start + i);
  };
  fetch(weights.codes, kBytes);
  if (weights.format == WeightFormat::kBlockFloat) {
    __builtin_prefetch(weights.scale_line(first_row));
    return;
  }
  if (weights.format != WeightFormat::kMlxAffine) return;
  fetch(weights.scales, kBytes / 8);
  fetch(weights.biases, kBytes / 8);
}

// hidden[begin, begin + hidden_rows) = silu(gate x) * (up x) within the limit, also quantised for
// `down`.
void compute_hidden(const Call& call, const Piece& piece, const WorkerMemory& memory) {
  const ExpertShare& share = *piece.share;
  const ExpertWeights& weights = *share.weights;
  const int64_t count = std::min(call.hidden_rows, weights.gate.rows - piece.begin);
  ActivationPacks x = share.x;
  x.build_tiles(call.kernels, weights.gate, memory.tiles);
  const WeightMatrix up = weights.up.slice_rows(piece.begin, count);
  const WeightMatrix gate = weights.gate.slice_rows(piece.begin, count);
  multiply_rows(call.kernels, gate, x, {share.hidden_rows, piece.begin}, share.fast,
                memory.kernel_scratch, up.codes.data);
  const auto pairs = share.hidden_rows.size();
  x.build_tiles(call.kernels, weights.up, memory.tiles);
  multiply_rows(call.kernels, up, x, {{memory.up_rows, pairs}, 0}, share.fast,
                memory.kernel_scratch, gate.codes.data + count * gate.codes.row_bytes);
  const int64_t group_size = packed_group_size(weights.down);
  for (size_t i = 0; i < pairs; ++i) {
    float* hidden = share.hidden_rows[i] + piece.begin;
    call.kernels.silu_multiply(hidden, memory.up_rows[i], count, call.params.swiglu.limit);
    if (group_size == 0) continue;
    call.kernels.pack_groups(share.hidden.layout(weights.down), hidden, piece.begin / group_size,
                             count / group_size, share.hidden.rows(weights.down)[i]);
  }
}

void compute_output(const Call& call, const Piece& piece, const WorkerMemory& memory) {
  const ExpertShare& share = *piece.share;
  const WeightMatrix& down = share.weights->down;
  const int64_t count = std::min(call.output_rows, down.rows - piece.begin);
  ActivationPacks hidden = share.hidden;
  hidden.build_tiles(call.kernels, down, memory.tiles);
  multiply_rows(call.kernels, down.slice_rows(piece.begin, count), hidden, {share.y, piece.begin},
                share.fast, memory.kernel_scratch);
}

std::span<const WorkerMemory> worker_memory(const Call& call, std::span<const ExpertShare> shares) {
  int64_t cols = 0;
  int64_t pairs = 0;
  int64_t tile_bytes = 0;
  for (const ExpertShare& share : shares) {
    tile_bytes = std::max({tile_bytes, share.x.tile_bytes(call.kernels, share.weights->gate),
                           share.x.tile_bytes(call.kernels, share.weights->up),
                           share.hidden.tile_bytes(call.kernels, share.weights->down)});
    cols = std::max({cols, share.weights->gate.cols, share.weights->down.cols});
    pairs = std::max(pairs, static_cast<int64_t>(share.y.size()));
  }
  const WorkerScratch scratch(call.stream, call.kernels, cols);
  Arena& arena = call.stream.scratch();
  const int workers = call.stream.threads().size();
  auto* memory = arena.allocate<WorkerMemory>(workers);
  for (int worker = 0; worker < workers; ++worker) {
    auto* tile = arena.allocate<float>(pairs * call.hidden_rows);
    auto* rows = arena.allocate<float*>(pairs);
    for (int64_t i = 0; i < pairs; ++i) rows[i] = tile + i * call.hidden_rows;
    auto* tiles = static_cast<std::byte*>(arena.allocate_bytes(static_cast<size_t>(tile_bytes)));
    memory[worker] = {scratch.of(worker), tiles, rows};
  }
  return {memory, static_cast<size_t>(workers)};
}

// The pieces of one region, which reads `matrices` of each expert.
struct Region {
  int64_t ExpertShare::* end;
  int64_t rows;
  std::initializer_list<WeightMatrix ExpertWeights::*> matrices;
  void (*compute)(const Call&, const Piece&, const WorkerMemory&);
};

void run_region(const Call& call, const Region& region, std::span<const ExpertShare> shares,
                std::span<const WorkerMemory> memory) {
  const auto run = [&](int worker, int64_t begin, int64_t end) {
    Piece piece = find_piece(shares, region.end, begin, region.rows);
    for (int64_t i = begin; i < end; ++i) {
      const Piece next = find_piece(shares, region.end, std::min(i + 1, end - 1), region.rows);
      if (next.share != piece.share) {
        for (const auto matrix : region.matrices) {
          fetch_start(next.share->weights->*matrix, next.begin);
        }
      }
      region.compute(call, piece, memory[static_cast<size_t>(worker)]);
      piece = next;
    }
  };
  call.stream.threads().parallel_ranges(shares.back().*region.end, run);
}

}  // namespace

void run_experts(const LinearKernels& kernels, const MatrixArithmetic& arithmetic, Stream& stream,
                 const ConstTensorView& x, RowCounts counts, ExpertParams params,
                 std::span<const ExpertWork> work, const TensorView& pair_out) {
  MOTLEY_CHECK(counts.total() == x.rows() && pair_out.rows() == x.rows() * params.experts_per_token,
               "pair_out must have one row for every row and slot");
  for (const ExpertWork& item : work) check_item(item, x.cols(), pair_out);
  const Arena::Scope scope(stream.scratch());
  const int threads = stream.threads().size();
  const Call call{kernels,
                  stream,
                  params,
                  pair_out,
                  piece_rows(work, threads, &ExpertWeights::gate),
                  piece_rows(work, threads, &ExpertWeights::down)};
  const auto rows = row_pointers(stream, x);
  const auto decode = static_cast<size_t>(counts.decode);
  const RoleInput roles[] = {
      pack_role(kernels, arithmetic.decode, stream, rows.first(decode), 0, x.cols(), work),
      pack_role(kernels, arithmetic.prefill, stream, rows.subspan(decode), counts.decode, x.cols(),
                work)};
  const std::span<ExpertShare> shares = make_shares(call, roles, work);
  if (shares.empty()) return;
  const auto memory = worker_memory(call, shares);
  run_region(call,
             {&ExpertShare::hidden_end,
              call.hidden_rows,
              {&ExpertWeights::gate, &ExpertWeights::up},
              compute_hidden},
             shares, memory);
  run_region(call,
             {&ExpertShare::output_end, call.output_rows, {&ExpertWeights::down}, compute_output},
             shares, memory);
}

}  // namespace motley
