// Attention over a part of the cache has its own type, and only merging makes it whole (R1).
//
// PartialAttention is what an attention op returns: the softmax-weighted values over the keys that
// its CacheView held, and the natural logarithm of the sum of exponentials. The output projection
// takes an AttentionOutput, which only `merge_partials` (ops/attention.h) can make, so using a
// quarter of the cache as if it were the whole does not compile.
#pragma once

#include "tensor/tensor_view.h"

namespace motley {

// log-sum-exp to base e of the scaled scores; not interchangeable with base 2.
struct NaturalLse {
  TensorView values;  // [rows, heads], float32 (float64 in the reference)
};

struct PartialAttention {
  TensorView out;  // [rows, heads, head_dim]
  NaturalLse lse;
};

class AttentionOutput {
 public:
  const TensorView& view() const { return view_; }

 private:
  friend class AttentionMerger;
  explicit AttentionOutput(TensorView view) : view_(view) {}
  TensorView view_;  // [rows, heads, head_dim]
};

// Hidden states before and after the final norm: a draft layer needs the latter, and the former
// costs acceptance silently (facts of the family: MTP input is post-norm).
struct PreNormHidden {
  TensorView values;  // [rows, hidden_size]
};
struct PostNormHidden {
  TensorView values;  // [rows, hidden_size]
};

}  // namespace motley
