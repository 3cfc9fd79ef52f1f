// Kimi delta attention against its formulas, one token after the other.
#include "model/blocks/channel_delta.h"

#include "model/channel_delta_test_util.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

using S = KimiShape;

const ChannelDeltaSpec& kimi_of(const ModelSpec& spec) {
  return std::get<ChannelDeltaSpec>(spec.layers[0].mixer);
}

struct Variant {
  DeltaForm form = DeltaForm::kRecurrent;
  bool bounded = true;
};

class ChannelDelta : public ::testing::TestWithParam<Variant> {
 protected:
  explicit ChannelDelta()
      : model_(kimi_model(), "",
               {.kv = DType::kF64,
                .recurrent = DType::kF64,
                .chunked_delta = GetParam().form == DeltaForm::kChunked},
               reference_op_table(), [](ModelSpec* spec) {
                 use_kimi_layer(spec, GetParam().bounded);
                 skip_rest(spec, true, false);
               }) {}

  Rows run(SequenceState& state, Rows x, int64_t first, RowRole role = RowRole::kPrefill) {
    const ChannelDeltaBlock block(kimi_of(model_.spec()), model_.weights(), 0, GetParam().form);
    const Batch batch = rows_of(state, x.rows, first, role);
    Rows out(x.rows, model_.spec().hidden_size);
    EXPECT_TRUE(block.run(model_.step(), batch, x.view(), out.view()).is_ok());
    return out;
  }

  Rows times(TensorHandle handle, const Rows& x) const {
    return times_transposed(model_.weights().matrix(handle), x);
  }

  // silu of the causal convolution of one projection, whose channels begin at `first`.
  Rows convolved(TensorHandle projection, int64_t first, const Rows& x) const {
    const ChannelDeltaSpec& spec = kimi_of(model_.spec());
    const float* kernel = model_.weights().convolution(spec.convolution).as<float>();
    const Rows u = times(projection, x);
    Rows y(u.rows, u.cols);
    for (int64_t t = 0; t < u.rows; ++t) {
      for (int64_t c = 0; c < u.cols; ++c) {
        double sum = 0;
        for (int64_t back = 0; back < S::kKernel && back <= t; ++back) {
          const int64_t tap = (first + c) * S::kKernel + S::kKernel - 1 - back;
          sum += double{kernel[tap]} * u.row(t - back)[c];
        }
        y.row(t)[c] = silu(sum);
      }
    }
    return y;
  }

  // e^g of every key channel.
  Rows factors(const Rows& x) const {
    const ChannelDeltaSpec& spec = kimi_of(model_.spec());
    const float* a_log = model_.weights().vector(spec.a_log).as<float>();
    const float* bias = model_.weights().vector(spec.dt_bias).as<float>();
    Rows a = times(spec.decay_proj, times(spec.decay_in_proj, x));
    for (int64_t t = 0; t < a.rows; ++t) {
      for (int64_t c = 0; c < a.cols; ++c) {
        const double rate = std::exp(double{a_log[c / S::kKeyDim]});
        const double value = a.row(t)[c] + double{bias[c]};
        a.row(t)[c] = std::exp(GetParam().bounded ? -5 * sigmoid(rate * value)
                                                  : -rate * std::log1p(std::exp(value)));
      }
    }
    return a;
  }

  Rows expected(const Rows& x) const {
    const ChannelDeltaSpec& spec = kimi_of(model_.spec());
    const Rows q = convolved(spec.q_proj, 0, x);
    const Rows k = convolved(spec.k_proj, S::kKeys, x);
    const Rows v = convolved(spec.v_proj, 2 * S::kKeys, x);
    const Rows keep = factors(x);
    const Rows b = times(spec.beta_proj, x);
    const Rows gate = times(spec.gate_proj, times(spec.gate_in_proj, x));
    Rows o(x.rows, S::kValues);
    for (int head = 0; head < S::kHeads; ++head) {
      const int64_t key = int64_t{head} * S::kKeyDim;
      Rows state(S::kKeyDim, S::kValueDim);
      for (int64_t t = 0; t < x.rows; ++t) {
        const double qn = 1 / length(q.row(t) + key) / std::sqrt(S::kKeyDim);
        const double kn = 1 / length(k.row(t) + key);
        double* out = o.row(t) + head * S::kValueDim;
        for (int c = 0; c < S::kValueDim; ++c) {
          double known = 0;
          for (int i = 0; i < S::kKeyDim; ++i) {
            state.row(i)[c] *= keep.row(t)[key + i];
            known += state.row(i)[c] * k.row(t)[key + i] * kn;
          }
          const double value = v.row(t)[head * S::kValueDim + c];
          const double update = sigmoid(b.row(t)[head]) * (value - known);
          out[c] = 0;
          for (int i = 0; i < S::kKeyDim; ++i) {
            state.row(i)[c] += k.row(t)[key + i] * kn * update;
            out[c] += state.row(i)[c] * q.row(t)[key + i] * qn;
          }
        }
        const std::vector<double> plain(out, out + S::kValueDim);
        plain_rms_norm(plain.data(), S::kValueDim, spec.norm, model_.weights(), out);
        for (int c = 0; c < S::kValueDim; ++c) {
          out[c] *= sigmoid(gate.row(t)[head * S::kValueDim + c]);
        }
      }
    }
    return times(spec.out_proj, o);
  }

  static double length(const double* x) {
    double sum = 1e-6;
    for (int i = 0; i < S::kKeyDim; ++i) sum += x[i] * x[i];
    return std::sqrt(sum);
  }

  ModelUnderTest model_;
};

INSTANTIATE_TEST_SUITE_P(Forms, ChannelDelta,
                         ::testing::Values(Variant{DeltaForm::kRecurrent, true},
                                           Variant{DeltaForm::kRecurrent, false},
                                           Variant{DeltaForm::kChunked, true},
                                           Variant{DeltaForm::kChunked, false}),
                         [](const auto& tested) {
                           const bool chunked = tested.param.form == DeltaForm::kChunked;
                           return std::string(chunked ? "Chunked" : "Recurrent") +
                                  (tested.param.bounded ? "Bounded" : "Softplus");
                         });

// A block and a half of the chunked form.
TEST_P(ChannelDelta, IsTheFormula) {
  SequenceState state = model_.new_state();
  const Rows x = varied_rows(kDeltaBlock + 30, TestModel::kHidden, 1);
  EXPECT_TRUE(rows_near(run(state, x, 0), expected(x), 1e-6));
}

TEST_P(ChannelDelta, ChunksEqualTheWhole) {
  const Rows x = varied_rows(100, TestModel::kHidden, 3);
  SequenceState whole_state = model_.new_state();
  const Rows whole = run(whole_state, x, 0);
  SequenceState state = model_.new_state();
  int64_t first = 0;
  for (const int64_t rows : {1, 2, 40, 21, 1, 35}) {  // ends inside, on and after a block's edge
    EXPECT_EQ(run(state, x.slice(first, rows), first).values, whole.slice(first, rows).values)
        << "rows from " << first;
    first += rows;
  }
  ASSERT_EQ(first, x.rows);
  EXPECT_EQ(state.save_fixed(), whole_state.save_fixed());
}

// A decode row after an unfinished block: the carry is folded in first and stays empty.
TEST_P(ChannelDelta, DecodeContinuesPrefill) {
  SequenceState state = model_.new_state();
  const Rows x = varied_rows(20, TestModel::kHidden, 4);
  const Rows want = expected(x);
  (void)run(state, x.slice(0, 18), 0);
  EXPECT_EQ(state.has_carry(), GetParam().form == DeltaForm::kChunked);
  for (const int64_t t : {18, 19}) {
    EXPECT_TRUE(rows_near(run(state, x.slice(t, 1), t, RowRole::kDecode), want.slice(t, 1), 1e-6));
    EXPECT_FALSE(state.has_carry());
  }
}

}  // namespace
}  // namespace motley
