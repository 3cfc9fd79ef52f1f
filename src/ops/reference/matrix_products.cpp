#include <vector>

#include "ops/reference/reference_math.h"
#include "ops/reference/reference_ops.h"

namespace motley {
namespace {

using InputRows = std::vector<const double*>;
using OutputRows = std::vector<double*>;

// outputs[i][n] = sum_k weights[n][k] * inputs[i][k], each row of weights decoded once.
void multiply(Stream& stream, const WeightMatrix& weights, const InputRows& inputs,
              const OutputRows& outputs) {
  stream.threads().parallel_for(weights.rows, 16, [&](int /*worker*/, int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(weights.cols));
    for (int64_t n = begin; n < end; ++n) {
      decode_row(weights, n, row.data());
      for (size_t i = 0; i < inputs.size(); ++i) {
        double sum = 0;
        for (size_t k = 0; k < row.size(); ++k) sum += row[k] * inputs[i][k];
        outputs[i][n] = sum;
      }
    }
  });
}

void linear(Stream& stream, const ConstTensorView& x, RowCounts counts,
            std::span<const LinearTarget> targets) {
  MOTLEY_CHECK(counts.total() == x.rows(), "row counts must cover x");
  InputRows inputs;
  for (int64_t row = 0; row < x.rows(); ++row) inputs.push_back(x.row<double>(row));
  for (const LinearTarget& target : targets) {
    MOTLEY_CHECK(target.weights.cols == x.cols(), "weights and x disagree on in_features");
    MOTLEY_CHECK(target.y.rows() == x.rows() && target.y.cols() == target.weights.rows,
                 "y must be [rows, out_features]");
    OutputRows outputs;
    for (int64_t row = 0; row < x.rows(); ++row) outputs.push_back(target.y.row<double>(row));
    multiply(stream, target.weights, inputs, outputs);
  }
}

void embed(Stream& /*stream*/, const WeightMatrix& table, std::span<const int32_t> ids,
           const TensorView& out) {
  MOTLEY_CHECK(out.cols() == table.cols && out.rows() == static_cast<int64_t>(ids.size()),
               "out must be [ids, table.cols]");
  for (size_t i = 0; i < ids.size(); ++i) {
    decode_row(table, ids[i], out.row<double>(static_cast<int64_t>(i)));
  }
}

void run_expert(Stream& stream, const ConstTensorView& x, ExpertParams params,
                const ExpertWork& work, const TensorView& pair_out) {
  const ExpertWeights& weights = *work.weights;
  MOTLEY_CHECK(weights.gate.cols == x.cols() && weights.up.cols == x.cols() &&
                   weights.up.rows == weights.gate.rows && weights.down.cols == weights.gate.rows &&
                   weights.down.rows == pair_out.cols(),
               "expert shapes disagree");
  const size_t pairs = work.pairs.size();
  const auto intermediate = static_cast<size_t>(weights.gate.rows);
  std::vector<double> gate(pairs * intermediate);
  std::vector<double> up(pairs * intermediate);
  InputRows inputs;
  InputRows hidden;
  OutputRows gates;
  OutputRows ups;
  OutputRows outputs;
  for (size_t i = 0; i < pairs; ++i) {
    inputs.push_back(x.row<double>(work.pairs[i] / params.experts_per_token));
    gates.push_back(gate.data() + i * intermediate);
    ups.push_back(up.data() + i * intermediate);
    hidden.push_back(gates.back());
    outputs.push_back(pair_out.row<double>(work.pairs[i]));
  }
  multiply(stream, weights.gate, inputs, gates);
  multiply(stream, weights.up, inputs, ups);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = reference_swiglu(gate[i], up[i], params.swiglu);
  }
  multiply(stream, weights.down, hidden, outputs);
}

void experts(Stream& stream, const ConstTensorView& x, RowCounts counts, ExpertParams params,
             std::span<const ExpertWork> work, const TensorView& pair_out) {
  MOTLEY_CHECK(counts.total() == x.rows() && pair_out.rows() == x.rows() * params.experts_per_token,
               "pair_out must have one row for every row and slot");
  for (const ExpertWork& item : work) run_expert(stream, x, params, item, pair_out);
}

}  // namespace

LinearOps reference_linear_ops() {
  return {linear, embed};
}

decltype(MoeOps::experts) reference_experts() {
  return experts;
}

}  // namespace motley
