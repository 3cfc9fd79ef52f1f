// Rows of activations, quantised once for each order that the weights of a call ask for, and laid
// out once more in tiles where the kernels want them.
//
// Memory comes from the stream's scratch and lives until the enclosing Arena::Scope ends.
// Thread rule: require(), pack() and gather() from the submitting thread; reading from any.
#pragma once

#include <array>
#include <span>

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/linear_ops.h"
#include "tensor/stream.h"
#include "tensor/weight_matrix.h"

namespace motley {

// The group size of integers that meet `weights`; 0: they take x as floats.
int64_t packed_group_size(const WeightMatrix& weights);

PackedLayout packed_layout(const WeightMatrix& weights, int limbs, bool bf16 = false);

class ActivationPacks {
 public:
  // rows: pointers to float rows of `cols` elements.
  ActivationPacks(std::span<const float* const> rows, int64_t cols, RoleArithmetic arithmetic)
      : float_rows_(rows), cols_(cols), arithmetic_(arithmetic) {}

  // Makes room for the order that `weights` needs; call for each matrix, then pack() once.
  void require(const LinearKernels& kernels, Stream& stream, const WeightMatrix& weights);
  void pack(const LinearKernels& kernels, Stream& stream);
  // For rows that the caller fills group by group: pads beyond the last column cleared.
  void clear();

  // Tiles of all rows in memory of the stream; after pack().
  void build_tiles(const LinearKernels& kernels, Stream& stream);
  // Tiles of all rows in the order of `weights`, in the caller's memory of tile_bytes, which holds
  // one order at a time; none when they lie there already.
  void build_tiles(const LinearKernels& kernels, const WeightMatrix& weights, std::byte* memory);
  int64_t tile_bytes(const LinearKernels& kernels, const WeightMatrix& weights) const;

  // The same rows in another order or with repetitions.
  ActivationPacks gather(Stream& stream, std::span<const int32_t> rows) const;
  // Rows [first, first + count); with tiles, first is a multiple of kTileTokens.
  ActivationPacks slice(int64_t first, int64_t count) const;

  int64_t count() const { return static_cast<int64_t>(float_rows_.size()); }
  std::span<const float* const> float_rows() const { return float_rows_; }
  const PackedLayout& layout(const WeightMatrix& weights) const { return find(weights).layout; }
  std::span<std::byte* const> rows(const WeightMatrix& weights) const { return find(weights).rows; }
  const std::byte* tiles(const WeightMatrix& weights) const { return find(weights).tiles; }

 private:
  struct Pack {
    PackedLayout layout;
    std::span<std::byte* const> rows;
    const std::byte* tiles = nullptr;
    int64_t piece_bytes = 0;  // of kTileTokens rows
  };
  const Pack& find(const WeightMatrix& weights) const;

  std::span<const float* const> float_rows_;
  int64_t cols_;
  RoleArithmetic arithmetic_;
  std::array<Pack, 8> packs_;  // three group sizes in two orders, and two of E2M1
  int pack_count_ = 0;
};

// y[t][y_offset + n] = row n of `weights` times row t of x. `scratch`: kernels.scratch_bytes.
// `next`: codes that the thread will probably read after these; null: what follows in memory.
struct ProductOutput {
  std::span<float* const> y;
  int64_t y_offset = 0;
};
void multiply_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                   const ActivationPacks& x, const ProductOutput& output, bool fast,
                   std::byte* scratch, const std::byte* next = nullptr);

}  // namespace motley
