// Shared by the model's tests: a small checkpoint loaded with everything a step needs, and rows of
// numbers that own their storage.
//
// The op table is the float64 reference unless a test asks for another, so what is compared with
// is plain arithmetic written out in the tests and may be held to a tolerance near rounding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/owned_context.h"
#include "experts/resident_store.h"
#include "io/loader.h"
#include "model/decoder.h"
#include "support/model_files.h"

namespace motley {

// Row-major numbers [rows, cols].
struct Rows {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Rows() = default;
  Rows(int64_t row_count, int64_t col_count)
      : rows(row_count), cols(col_count), values(static_cast<size_t>(row_count * col_count), 0.0) {}

  double* row(int64_t r) { return values.data() + r * cols; }
  const double* row(int64_t r) const { return values.data() + r * cols; }
  TensorView view() { return view_of(values.data(), {rows, cols}); }

  Rows slice(int64_t begin, int64_t count) const {
    Rows result(count, cols);
    result.values.assign(values.begin() + begin * cols, values.begin() + (begin + count) * cols);
    return result;
  }
};

// Values in (-1, 1) that differ by seed, row and column.
inline Rows varied_rows(int64_t rows, int64_t cols, int seed) {
  Rows result(rows, cols);
  for (size_t i = 0; i < result.values.size(); ++i) {
    const auto step = static_cast<double>(i) * 0.7548776662466927 + 0.31 * seed;
    result.values[i] = 2 * (step - std::floor(step)) - 1;
  }
  return result;
}

// |a - b| <= relative * the largest |b|, everywhere; NaN fails.
inline testing::AssertionResult rows_near(const Rows& actual, const Rows& expected,
                                          double relative) {
  if (actual.rows != expected.rows || actual.cols != expected.cols) {
    return testing::AssertionFailure() << "shapes differ";
  }
  double largest = 0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  if (!(largest > 0)) return testing::AssertionFailure() << "nothing but zeros to compare with";
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (std::abs(actual.values[i] - expected.values[i]) <= relative * largest) continue;
    return testing::AssertionFailure()
           << "row " << static_cast<int64_t>(i) / expected.cols << " column "
           << static_cast<int64_t>(i) % expected.cols << ": " << actual.values[i] << ", expected "
           << expected.values[i] << " (largest " << largest << ")";
  }
  return testing::AssertionSuccess();
}

// y = W x, row by row, in the order of the weights.
inline Rows times_transposed(const WeightMatrix& weights, const Rows& x) {
  MOTLEY_CHECK(weights.cols == x.cols, "the test multiplies shapes that do not fit");
  Rows y(x.rows, weights.rows);
  std::vector<double> row(static_cast<size_t>(weights.cols));
  for (int64_t o = 0; o < weights.rows; ++o) {
    decode_row(weights, o, row.data());
    for (int64_t r = 0; r < x.rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < x.cols; ++i) sum += row[static_cast<size_t>(i)] * x.row(r)[i];
      y.row(r)[o] = sum;
    }
  }
  return y;
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double silu(double x) {
  return x * sigmoid(x);
}

// out = x / rms(x) * (weight + offset), over `count` values.
inline void plain_rms_norm(const double* x, int64_t count, const NormSpec& norm,
                           const LoadedWeights& weights, double* out) {
  const float* weight = weights.vector(norm.weight).as<float>();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(count) + double{norm.epsilon});
  for (int64_t i = 0; i < count; ++i) {
    out[i] = x[i] * scale * (double{weight[i]} + double{norm.weight_offset});
  }
}

inline Rows plain_rms_norm(const Rows& x, const NormSpec& norm, const LoadedWeights& weights) {
  Rows result(x.rows, x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    plain_rms_norm(x.row(r), x.cols, norm, weights, result.row(r));
  }
  return result;
}

// down(silu(gate x) * (up x)).
inline Rows plain_mlp(const WeightMatrix& gate, const WeightMatrix& up, const WeightMatrix& down,
                      const Rows& x) {
  Rows inner = times_transposed(gate, x);
  const Rows linear = times_transposed(up, x);
  for (size_t i = 0; i < inner.values.size(); ++i) {
    inner.values[i] = silu(inner.values[i]) * linear.values[i];
  }
  return times_transposed(down, inner);
}

// Divides every bfloat16 value of the tensors whose names hold `part` by `divisor`, a power of two:
// with the weights of the fixture every softmax would be saturated.
inline void shrink(TestModel* model, std::string_view part, float divisor) {
  for (auto& [name, tensor] : model->tensors) {
    if (name.find(part) == std::string::npos || tensor.dtype != DType::kBf16) continue;
    for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(Bf16)) {
      Bf16 value;
      std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
      value = to_bf16(to_float(value) / divisor);
      std::memcpy(tensor.bytes.data() + at, &value, sizeof value);
    }
  }
}

// The default model with softmaxes that are not saturated.
inline TestModel mild_model(TestModelOptions options = {}) {
  TestModel model(options);
  shrink(&model, "mlp.gate.weight", 16);
  shrink(&model, "shared_expert_gate", 16);
  shrink(&model, "q_norm", 4);
  return model;
}

// A checkpoint on disk, loaded (after `change` to its spec, for layers that its family has not),
// with one rank and one pool of state.
class ModelUnderTest {
 public:
  explicit ModelUnderTest(const TestModel& model, const std::string& config = "",
                          StateFormat format = {.kv = DType::kF64, .recurrent = DType::kF64},
                          OpTable table = reference_op_table(),
                          const std::function<void(ModelSpec*)>& change = {})
      : loaded_(load(context_.get(), directory_, model, config, change)),
        table_(std::move(table)),
        store_(model_experts(loaded_.spec, loaded_.weights)),
        stream_(context_.get()),
        layout_(make_state_layout(loaded_.spec, format)),
        pool_(context_.get(), int64_t{64} << 20) {}

  const ModelSpec& spec() const { return loaded_.spec; }
  const LoadedWeights& weights() const { return loaded_.weights; }
  ExpertStore& store() { return store_; }
  StepContext& step() { return step_; }
  Stream& stream() { return stream_; }
  OpTable& table() { return table_; }
  OwnedContext& context() { return context_; }
  PagePool& pool() { return pool_; }
  const StateLayout& layout() const { return layout_; }
  SequenceState new_state() { return SequenceState::create(layout_, pool_).value(); }
  Decoder decoder(DeltaForm form = DeltaForm::kRecurrent) {
    return Decoder(spec(), weights(), store_, form);
  }
  // The same step with other ranks to talk to.
  StepContext step_with(Collective& collective) { return {table_, stream_, topology_, collective}; }

 private:
  static LoadedModel load(Context& context, const TemporaryDirectory& directory,
                          const TestModel& model, const std::string& config,
                          const std::function<void(ModelSpec*)>& change) {
    write_model(model, directory);
    if (!config.empty()) directory.write("config.json", config);
    Result<OpenedModel> opened = open_model(context, directory.path());
    MOTLEY_CHECK(opened.is_ok(), opened.status().message());
    if (change) change(&opened->spec);
    Result<LoadedModel> loaded = load_model(context, std::move(opened).value());
    MOTLEY_CHECK(loaded.is_ok(), loaded.status().message());
    return std::move(loaded).value();
  }

  OwnedContext context_{{.threads = 1, .pin = false}};  // death tests fork
  TemporaryDirectory directory_;
  LoadedModel loaded_;
  OpTable table_;
  ResidentExpertStore store_;
  HostStream stream_;
  Topology topology_ = Topology::single();
  SingleCollective collective_;
  StepContext step_{table_, stream_, topology_, collective_};
  StateLayout layout_;
  PagePool pool_;
};

// A batch of one segment whose tokens do not matter.
inline Batch rows_of(SequenceState& state, int64_t rows, int64_t first,
                     RowRole role = RowRole::kPrefill) {
  Batch batch;
  const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
  batch.add(role, state, tokens, {first});
  const Status status = batch.reserve();
  MOTLEY_CHECK(status.is_ok(), status.message());
  return batch;
}

}  // namespace motley
