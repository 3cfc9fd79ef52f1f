// Kernel of ops/index_pool.h. Included after math_inl.h.
#pragma once

namespace motley {
namespace {

// Sums run over the tokens of the pool in order; a pool of equal gates gives the mean.
void index_pool(const IndexPoolTask& task) {
  for (int64_t c = 0; c < task.dim; c += kLanes) {
    const int64_t rest = task.dim - c;
    Vec highest = set1(-__builtin_inff());
    for (int64_t j = 0; j < task.pool; ++j) {
      const Vec gate = load_upto(task.gates[j] + c, rest);
      highest = max(highest, add(gate, load_upto(task.ape + j * task.dim + c, rest)));
    }
    Vec sum = zero();
    Vec key = zero();
    for (int64_t j = 0; j < task.pool; ++j) {
      const Vec gate = load_upto(task.gates[j] + c, rest);
      const Vec score = add(gate, load_upto(task.ape + j * task.dim + c, rest));
      const Vec share = exp_vec(sub(score, highest));
      sum = add(sum, share);
      key = fma(share, load_upto(task.keys[j] + c, rest), key);
    }
    store_upto(task.key + c, div(key, sum), rest);
  }
}

}  // namespace
}  // namespace motley
