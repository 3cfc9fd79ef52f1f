// Rows of activations, quantised once for each order that the weights of a call ask for.
//
// Memory comes from the stream's scratch and lives until the enclosing Arena::Scope ends.
// Thread rule: require(), pack() and gather() from the submitting thread; reading from any.
#pragma once

#include <array>
#include <span>

#include "ops/cpu/linear_kernels.h"
#include "tensor/stream.h"
#include "tensor/weight_matrix.h"

namespace motley {

PackedLayout packed_layout(const MlxAffineFormat& format, int64_t cols, int limbs);

class ActivationPacks {
 public:
  // rows: pointers to float rows of `cols` elements.
  ActivationPacks(std::span<const float* const> rows, int64_t cols, int limbs)
      : float_rows_(rows), cols_(cols), limbs_(limbs) {}

  // Makes room for the order that `weights` needs; call for each matrix, then pack() once.
  void require(Stream& stream, const WeightMatrix& weights);
  void pack(const LinearKernels& kernels, Stream& stream);
  // For rows that the caller fills group by group: pads beyond the last column cleared.
  void clear();

  // The same rows in another order or with repetitions.
  ActivationPacks gather(Stream& stream, std::span<const int32_t> rows) const;
  // Rows [first, first + count).
  ActivationPacks slice(int64_t first, int64_t count) const;

  int64_t count() const { return static_cast<int64_t>(float_rows_.size()); }
  std::span<const float* const> float_rows() const { return float_rows_; }
  const PackedLayout& layout(const WeightMatrix& weights) const { return find(weights).layout; }
  std::span<std::byte* const> rows(const WeightMatrix& weights) const { return find(weights).rows; }

 private:
  struct Pack {
    PackedLayout layout;
    std::span<std::byte* const> rows;
  };
  const Pack& find(const WeightMatrix& weights) const;

  std::span<const float* const> float_rows_;
  int64_t cols_;
  int limbs_;
  std::array<Pack, 6> packs_;  // three group sizes in two orders
  int pack_count_ = 0;
};

// y[t][y_offset + n] = row n of `weights` times row t of x. `scratch`: kernels.scratch_bytes.
struct ProductOutput {
  std::span<float* const> y;
  int64_t y_offset = 0;
};
void multiply_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                   const ActivationPacks& x, const ProductOutput& output, bool fast,
                   std::byte* scratch);

}  // namespace motley
