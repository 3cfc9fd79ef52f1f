// What the op test of a backend stands on: memory of that backend, tensors that exist twice (in
// float64 for the reference, in the backend's types and memory), and the table of results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/context.h"
#include "ops/op_table.h"

namespace motley::ops_device {

// The backend under test.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual OpTable table(NumericProfile profile) = 0;
  virtual Stream& stream() = 0;
  // Memory in the backend's space, released by release_all().
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release_all() = 0;
  virtual void upload(std::byte* target, const void* source, size_t bytes) = 0;
  virtual void download(void* target, const std::byte* source, size_t bytes) = 0;
  virtual Status status() = 0;
  // Mean microseconds of one call of work(i), i counting repeats; excludes submission where the
  // backend can.
  virtual double time_us(int repeats, const std::function<void(int)>& work) = 0;
  // Bytes read plus written per second by a large copy.
  virtual double copy_bytes_per_s() = 0;
  virtual std::string description() = 0;
};

Result<std::unique_ptr<Backend>> make_cpu_backend(Context& context);
// kUnsupported in a build without CUDA.
Result<std::unique_ptr<Backend>> make_cuda_backend(Context& context);

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t bits();
  int64_t integer(int64_t low, int64_t high);  // both included
  double normal();                             // rounded to float32
  template <typename T>
  T pick(std::initializer_list<T> items) {
    return items.begin()[integer(0, static_cast<int64_t>(items.size()) - 1)];
  }

 private:
  uint64_t state_;
};

// One tensor, twice.
struct Twin {
  Shape shape;
  std::vector<double> values;  // what the reference sees and changes
  TensorView reference;
  TensorView device;
};

struct TwinWeights {
  std::vector<std::byte> storage;
  WeightMatrix reference;
  WeightMatrix device;
};

struct WeightKind {
  WeightFormat format = WeightFormat::kMlxAffine;
  int bits = 4;
  int group_size = 64;
  DType scale_dtype = DType::kBf16;
};

// Worst result of one op over its cases.
struct Line {
  std::string op;
  std::string shapes;
  int cases = 0;
  double worst_error = 0;
  double worst_share = 0;  // largest error / limit
  bool passed = true;
};

class Harness {
 public:
  Harness(Backend& backend, Stream& host, uint64_t seed)
      : backend_(backend), host_(host), random_(seed), reference_(reference_op_table()) {}

  Backend& backend() { return backend_; }
  Stream& device() { return backend_.stream(); }
  Stream& host() { return host_; }
  Random& random() { return random_; }
  const OpTable& reference() const { return reference_; }

  Twin random_twin(const Shape& shape, double scale = 1.0);
  // Poisoned with NaN on the device, zero in the reference: for outputs.
  Twin output_twin(const Shape& shape);
  TwinWeights random_weights(const WeightKind& kind, int64_t rows, int64_t cols);
  // Device values of a float32 tensor, in row order.
  std::vector<float> fetch(const TensorView& view);
  TensorView upload_ints(const std::vector<int32_t>& values, const Shape& shape);
  std::vector<int32_t> fetch_ints(const TensorView& view);

  // Starts the line of an op; later checks belong to it.
  void begin(std::string op, std::string shapes);
  // Compares element by element with limit(i); NaN fails.
  void check(const Twin& twin, const std::function<double(size_t)>& limit);
  // |error| <= relative * max(|reference| over the tensor, floor).
  void check(const Twin& twin, double relative, double floor = 1e-3);
  void check_true(bool condition);
  void end_case();

  const std::vector<Line>& lines() const { return lines_; }

 private:
  Twin make_twin(const Shape& shape, const std::vector<float>& start);

  Backend& backend_;
  Stream& host_;
  Random random_;
  OpTable reference_;
  std::vector<Line> lines_;
};

// Each fills lines of `harness` for its group of ops.
void run_linear_cases(Harness& harness, int cases);
void run_norm_cases(Harness& harness, int cases);
void run_attention_cases(Harness& harness, int cases);
void run_moe_cases(Harness& harness, int cases);
void run_delta_cases(Harness& harness, int cases);
void run_channel_cases(Harness& harness, int cases);
void run_latent_cases(Harness& harness, int cases);
void run_index_cases(Harness& harness, int cases);
void run_hyper_cases(Harness& harness, int cases);

// Prints timings at the shapes of a 397B-A17B model; shares of the matrix rate if it is given. Only
// measurements whose name contains `only`.
void run_benchmarks(Backend& backend, double matrix_flops_per_s, const std::string& only);

}  // namespace motley::ops_device
