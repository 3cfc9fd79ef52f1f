// The timing half of the op test: random data on the device and one line per measurement.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops_device/harness.h"

namespace motley::ops_device {

class Bench {
 public:
  // Operations are compared with `matrix_flops_per_s` when it is not zero. `only`: parts of names,
  // separated by |, or empty for every measurement.
  Bench(Backend& backend, double matrix_flops_per_s, const std::string& only);

  const OpTable& ops() const { return ops_; }
  Stream& stream() { return backend_.stream(); }
  Random& random() { return random_; }

  // `copies` matrices of equal random contents at different addresses.
  std::vector<WeightMatrix> weights(const WeightKind& kind, int64_t rows, int64_t cols,
                                    int64_t copies);
  TensorView tensor(const Shape& shape);
  // `block` over and over.
  TensorView ints(const Shape& shape, const std::vector<int32_t>& block);
  std::byte* random_bf16(int64_t elements);
  void release() { backend_.release_all(); }

  // Whether a measurement whose name begins with `start` is asked for; saves making its data.
  bool wants(const std::string& start) const;
  void header();
  void measure(const std::string& name, double bytes, double flops, int repeats,
               const std::function<void(int)>& work);

 private:
  // Device memory filled with `block` over and over.
  std::byte* repeat(const void* block, size_t block_bytes, size_t bytes);

  Backend& backend_;
  OpTable ops_;
  Random random_{1};
  double copy_bytes_per_s_;
  double matrix_flops_per_s_;
  std::vector<std::string> only_;
};

// Parts of run_benchmarks that other files hold.
void bench_channel_delta(Bench& bench, int32_t rows, bool chunked);
void bench_hyper(Bench& bench, int64_t rows);
void bench_latent(Bench& bench);

}  // namespace motley::ops_device
