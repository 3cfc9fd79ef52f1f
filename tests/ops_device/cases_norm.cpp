// Norms, element-wise ops and the causal convolution.
#include <cstring>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

constexpr double kRelative = 4e-6;

void rms_norm_case(Harness& h, const NormOps& ops) {
  const int64_t rows = h.random().integer(1, 40);
  const int64_t dim = h.random().integer(1, 5000);
  Twin x = h.random_twin({rows, dim});
  const Twin weight = h.random_twin({dim});
  Twin y = h.output_twin({rows, dim});
  const std::vector<float> weight_f32(weight.values.begin(), weight.values.end());
  const RmsNormParams params{1e-6f, h.random().pick({0.0f, 1.0f})};
  ops.rms_norm(h.device(), x.device, weight.device, params, y.device);
  h.reference().norm.rms_norm(h.host(), x.reference, view_of(weight_f32.data(), {dim}), params,
                              y.reference);
  h.check(y, kRelative);
  h.end_case();
}

void gated_norm_case(Harness& h, const NormOps& ops) {
  const int64_t rows = h.random().integer(1, 20);
  const int64_t dim = h.random().pick({16, 64, 128, 100});
  const int64_t heads = h.random().integer(1, 20);
  Twin x = h.random_twin({rows, heads * dim});
  Twin gate = h.random_twin({rows, heads * dim});
  const Twin weight = h.random_twin({dim});
  const std::vector<float> weight_f32(weight.values.begin(), weight.values.end());
  Twin y = h.output_twin({rows, heads * dim});
  ops.gated_rms_norm(h.device(), x.device, gate.device, weight.device, {}, y.device);
  h.reference().norm.gated_rms_norm(h.host(), x.reference, gate.reference,
                                    view_of(weight_f32.data(), {dim}), {}, y.reference);
  h.check(y, kRelative);
  h.end_case();
}

void pointwise_case(Harness& h, const NormOps& ops) {
  const int64_t rows = h.random().integer(1, 30);
  const int64_t dim = h.random().integer(2, 3000);
  Twin a = h.random_twin({rows, dim});
  Twin b = h.random_twin({rows, dim});
  Twin gate = h.random_twin({rows, 1});
  const NormOps& reference = h.reference().norm;
  ops.add(h.device(), a.device, b.device);
  reference.add(h.host(), a.reference, b.reference);
  h.check(b, kRelative);
  SwigluParams swiglu;
  if (h.random().integer(0, 1) == 1) swiglu.limit = 0.5f;
  ops.silu_multiply(h.device(), a.device, b.device, swiglu, b.device);
  reference.silu_multiply(h.host(), a.reference, b.reference, swiglu, b.reference);
  h.check(b, kRelative);
  ops.sigmoid_multiply(h.device(), a.device, b.device);
  reference.sigmoid_multiply(h.host(), a.reference, b.reference);
  h.check(b, kRelative);
  ops.sigmoid_multiply(h.device(), gate.device, b.device);
  reference.sigmoid_multiply(h.host(), gate.reference, b.reference);
  h.check(b, kRelative);
  h.end_case();
}

void rows_case(Harness& h, const NormOps& ops) {
  const int64_t rows = h.random().integer(1, 30);
  const int64_t dim = h.random().integer(1, 600);
  Twin y = h.random_twin({rows, dim});
  const Twin bias = h.random_twin({dim});
  const std::vector<float> bias_f32(bias.values.begin(), bias.values.end());
  const std::vector<int32_t> zeros = {0, static_cast<int32_t>(rows - 1)};
  ops.add_bias(h.device(), bias.device, y.device);
  ops.zero_rows(h.device(), zeros, y.device);
  h.reference().norm.add_bias(h.host(), view_of(bias_f32.data(), {dim}), y.reference);
  h.reference().norm.zero_rows(h.host(), zeros, y.reference);
  h.check(y, kRelative);
  h.end_case();
}

// Gates between other data of each head; what lies past the last gate is not there.
void head_gate_case(Harness& h, const NormOps& ops) {
  const int64_t rows = h.random().integer(1, 30);
  const int64_t heads = h.random().integer(1, 8);
  const int64_t dim = h.random().integer(1, 70);
  const int64_t stride = dim + h.random().integer(0, 70);
  const Twin data = h.random_twin({rows, heads * stride});
  Twin y = h.random_twin({rows, heads, dim});
  const auto gates = [&](TensorView view) {
    view.data += (stride - dim) * dtype_bytes(view.dtype);
    view.shape = {rows, heads, stride};
    return view;
  };
  ops.sigmoid_multiply(h.device(), gates(data.device), y.device);
  h.reference().norm.sigmoid_multiply(h.host(), gates(data.reference), y.reference);
  h.check(y, kRelative);
  h.end_case();
}

// The same rows in one call and cut in two give the same bits and the reference's window.
void convolution_case(Harness& h, const ConvolutionOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(2, 100));
  const auto cut = static_cast<int32_t>(h.random().integer(1, rows - 1));
  const int64_t channels = h.random().integer(1, 600);
  const int64_t taps = h.random().pick({2, 4});
  Twin u = h.random_twin({rows, channels});
  const Twin weight = h.random_twin({channels, taps});
  const std::vector<float> weight_f32(weight.values.begin(), weight.values.end());
  Twin window = h.random_twin({taps - 1, channels});
  Twin window_cut = h.output_twin({taps - 1, channels});
  const std::vector<float> start = h.fetch(window.device);
  h.backend().upload(window_cut.device.data, start.data(), start.size() * sizeof(float));
  Twin y = h.output_twin({rows, channels});
  Twin y_cut = h.output_twin({rows, channels});
  const RowSegment whole{RowRole::kPrefill, 0, rows, {}};
  const ConvolutionSegment on_device{whole, window.device};
  const ConvolutionSegment on_host{whole, window.reference};
  ops.causal_convolution(h.device(), u.device, weight.device, {&on_device, 1}, y.device);
  h.reference().convolution.causal_convolution(h.host(), u.reference,
                                               view_of(weight_f32.data(), {channels, taps}),
                                               {&on_host, 1}, y.reference);
  for (const RowSegment& part : {RowSegment{RowRole::kPrefill, 0, cut, {}},
                                 RowSegment{RowRole::kPrefill, cut, rows - cut, {}}}) {
    const ConvolutionSegment segment{part, window_cut.device};
    ops.causal_convolution(h.device(), u.device, weight.device, {&segment, 1}, y_cut.device);
  }
  h.check(y, kRelative);
  h.check(window, 0.0);
  h.check_true(h.fetch(y.device) == h.fetch(y_cut.device));
  h.check_true(h.fetch(window.device) == h.fetch(window_cut.device));
  h.end_case();
}

// Tentative rows leave the window alone; taking some of them leaves that of as many ordinary ones.
void window_rollback_case(Harness& h, const ConvolutionOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().pick({1, 3, 9, 70}));
  const auto kept = static_cast<int32_t>(h.random().integer(0, rows));
  const int64_t channels = h.random().integer(1, 600);
  const int64_t taps = h.random().pick({2, 4});
  const Twin u = h.random_twin({rows, channels});
  const Twin weight = h.random_twin({channels, taps});
  const Twin window = h.random_twin({taps - 1, channels});
  const std::vector<float> before = h.fetch(window.device);
  const Twin tentative = h.output_twin({rows, channels});
  const Twin y = h.output_twin({rows, channels});
  ConvolutionSegment segment{
      {RowRole::kDecode, 0, rows, {}}, window.device, h.output_twin({rows, channels}).device};
  ops.causal_convolution(h.device(), u.device, weight.device, {&segment, 1}, tentative.device);
  h.check_true(h.fetch(window.device) == before);
  segment.rows.rows = kept;
  ops.commit(h.device(), segment);
  const std::vector<float> taken = h.fetch(window.device);
  h.backend().upload(window.device.data, before.data(), before.size() * sizeof(float));
  segment = {{RowRole::kDecode, 0, kept, {}}, window.device, {}};
  ops.causal_convolution(h.device(), u.device, weight.device, {&segment, 1}, y.device);
  h.check_true(h.fetch(window.device) == taken);
  segment = {{RowRole::kDecode, kept, rows - kept, {kept}}, window.device, {}};
  ops.causal_convolution(h.device(), u.device, weight.device, {&segment, 1}, y.device);
  h.check_true(h.fetch(y.device) == h.fetch(tentative.device));
  h.end_case();
}

}  // namespace

void run_norm_cases(Harness& h, int cases) {
  const OpTable table = h.backend().table(NumericProfile::kExact);
  h.begin("rms_norm", "1-40 x 1-5000");
  for (int i = 0; i < cases; ++i) rms_norm_case(h, table.norm);
  h.begin("gated_rms_norm", "1-20 x 1-20 heads");
  for (int i = 0; i < cases; ++i) gated_norm_case(h, table.norm);
  h.begin("add, silu, sigmoid", "1-30 x 2-3000");
  for (int i = 0; i < cases; ++i) pointwise_case(h, table.norm);
  h.begin("sigmoid by head", "1-30 x 1-8 heads");
  for (int i = 0; i < cases; ++i) head_gate_case(h, table.norm);
  h.begin("add_bias, zero_rows", "1-30 x 1-600");
  for (int i = 0; i < cases; ++i) rows_case(h, table.norm);
  h.begin("convolution rollback", "1-70 x 1-600");
  for (int i = 0; i < cases; ++i) window_rollback_case(h, table.convolution);
  h.begin("causal_convolution", "2-100 x 1-600, cut");
  for (int i = 0; i < cases; ++i) convolution_case(h, table.convolution);
}

}  // namespace motley::ops_device
