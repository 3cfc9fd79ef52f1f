#include "engine/verify/verify_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"
#include "engine/step_runner.h"
#include "engine/verify/route_table.h"

namespace motley {
namespace {

std::vector<double> to_double(const TensorView& view) {
  const auto count = static_cast<size_t>(view.shape.elements());
  if (view.dtype == DType::kF64) return {view.as<double>(), view.as<double>() + count};
  return {view.as<float>(), view.as<float>() + count};
}

LayerError compare(std::string layer, std::string path, const TensorView& engine,
                   const TensorView& reference, double limit) {
  const std::vector<double> a = to_double(engine);
  const std::vector<double> b = to_double(reference);
  double difference = 0;
  double largest = 0;
  double dot = 0;
  double norm_a = 0;
  double norm_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = std::fabs(a[i] - b[i]);
    difference = std::isnan(off) ? HUGE_VAL : std::max(difference, off);
    largest = std::max(largest, std::fabs(b[i]));
    dot += a[i] * b[i];
    norm_a += a[i] * a[i];
    norm_b += b[i] * b[i];
  }
  LayerError error{.layer = std::move(layer), .path = std::move(path)};
  error.largest = largest > 0 ? difference / largest : difference;
  error.cosine = norm_a > 0 && norm_b > 0 ? dot / std::sqrt(norm_a * norm_b) : 1;
  error.passed = error.largest <= limit;
  return error;
}

std::string layer_name(const ModelSpec& spec, int layer) {
  const LayerSpec& found = spec.layers[static_cast<size_t>(layer)];
  return fmt::format("{} ({})", layer, mixer_name(found.mixer));
}

// One engine with a sequence of its own.
struct Side {
  Side(Engine& engine, Sequence own)
      : decoder(engine.decoder()), sequence(std::move(own)), runner(engine) {}
  const Decoder& decoder;
  Sequence sequence;
  StepRunner runner;
  Batch batch;
};

class LayerVerifier {
 public:
  LayerVerifier(const ModelSpec& spec, Side& engine, Side& reference,
                const LayerVerifyOptions& options, LayerReport* report)
      : spec_(spec), engine_(engine), reference_(reference), options_(options), report_(report) {}

  Status run_rows(RowRole role, std::span<const int32_t> tokens, int64_t first) {
    const std::string path = role == RowRole::kPrefill ? "prefill" : "decode";
    for (Side* side : {&engine_, &reference_}) {
      side->batch.clear();
      side->batch.add(role, side->sequence.state(), tokens, {first});
      MOTLEY_RETURN_IF_ERROR(side->batch.reserve());
    }
    StepContext& step = engine_.runner.step_context();
    StepContext& exact = reference_.runner.step_context();
    const Arena::Scope scope(step.stream.scratch());
    const Arena::Scope exact_scope(exact.stream.scratch());
    const Shape shape = engine_.decoder.residual_shape(std::ssize(tokens));
    const TensorView hidden = step.scratch(shape);
    const TensorView wide = exact.scratch(shape);
    const int64_t width = engine_.decoder.selection_width();
    for (StepContext* context : {&step, &exact}) {
      if (width > 0) context->selection = context->scratch_selection(std::ssize(tokens), width);
    }
    engine_.decoder.embed(step, tokens, hidden);
    for (int layer = 0; layer < engine_.decoder.layers(); ++layer) {
      if (options_.progress) options_.progress(fmt::format("{} layer {}", path, layer));
      MOTLEY_RETURN_IF_ERROR(run_layer(layer, path, hidden, wide));
    }
    compare_head(path, hidden, wide);
    step.selection = {};
    exact.selection = {};
    return Status::ok();
  }

 private:
  Status run_layer(int layer, const std::string& path, const TensorView& hidden,
                   const TensorView& wide) {
    widen(hidden, wide);
    ChoiceRecorder recorder;
    MOTLEY_RETURN_IF_ERROR(engine_.decoder.run_layer(layer, engine_.runner.step_context(),
                                                     engine_.batch, hidden, recorder));
    ChoiceForcer forcer(recorder.tables(), kAnyGap, kAnyGap);
    MOTLEY_RETURN_IF_ERROR(reference_.decoder.run_layer(layer, reference_.runner.step_context(),
                                                        reference_.batch, wide, forcer));
    record(compare(layer_name(spec_, layer), path, hidden, wide, report_->limit));
    return Status::ok();
  }

  void compare_head(const std::string& path, const TensorView& hidden, const TensorView& wide) {
    widen(hidden, wide);
    const auto logits_of = [&](Side& side, const TensorView& rows) {
      StepContext& step = side.runner.step_context();
      const PostNormHidden normed = side.decoder.final_norm(
          step, PreNormHidden{rows}, step.scratch({rows.rows(), side.decoder.hidden_size()}));
      const TensorView logits = step.scratch({rows.rows(), side.decoder.vocab_size()});
      side.decoder.logits(step, normed, side.batch.counts, logits);
      step.stream.synchronize();
      return logits;
    };
    const TensorView narrow_logits = logits_of(engine_, hidden);
    const TensorView wide_logits = logits_of(reference_, wide);
    record(compare("norm and head", path, narrow_logits, wide_logits, report_->limit));
  }

  static void widen(const TensorView& from, const TensorView& to) {
    const std::vector<double> values = to_double(from);
    std::copy(values.begin(), values.end(), to.as<double>());
  }

  // Decode steps of one layer share a line: the worst one.
  void record(LayerError error) {
    for (LayerError& line : report_->layers) {
      if (line.layer != error.layer || line.path != error.path) continue;
      if (error.largest > line.largest) line = std::move(error);
      return;
    }
    report_->layers.push_back(std::move(error));
  }

  const ModelSpec& spec_;
  Side& engine_;
  Side& reference_;
  const LayerVerifyOptions& options_;
  LayerReport* report_;
};

}  // namespace

double layer_limit(NumericProfile profile) {
  return profile == NumericProfile::kExact ? 2e-5 : 2e-2;
}

bool LayerReport::passed() const {
  return std::all_of(layers.begin(), layers.end(), [](const LayerError& e) { return e.passed; });
}

std::string LayerReport::table() const {
  std::string text =
      fmt::format("{} against the float64 reference, limit {:.0e}\n{:8} {:20} {:>10} {:>14}  {}\n",
                  numerics, limit, "path", "layer", "largest", "1 - cosine", "result");
  for (const LayerError& error : layers) {
    text +=
        fmt::format("{:8} {:20} {:>10.2e} {:>14.2e}  {}\n", error.path, error.layer, error.largest,
                    std::max(0.0, 1 - error.cosine), error.passed ? "ok" : "OFF");
  }
  return text;
}

std::string LayerReport::json() const {
  std::string text =
      fmt::format("{{\"passed\": {}, \"numerics\": \"{}\", \"limit\": {:.1e}, \"layers\": [",
                  passed(), numerics, limit);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerError& error = layers[i];
    text += fmt::format(
        "{}\n  {{\"path\": \"{}\", \"layer\": \"{}\", \"largest\": {:.6e}, \"cosine\": {:.12f}, "
        "\"passed\": {}}}",
        i == 0 ? "" : ",", error.path, error.layer, error.largest, error.cosine, error.passed);
  }
  return text + "\n]}\n";
}

Result<LayerReport> verify_layers(Engine& engine, const LayerVerifyOptions& options) {
  EngineOptions numerics = engine.options();
  numerics.reference = true;
  MOTLEY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> exact, engine.with_numerics(numerics));
  MOTLEY_ASSIGN_OR_RETURN(Sequence own, engine.create_sequence());
  MOTLEY_ASSIGN_OR_RETURN(Sequence exact_own, exact->create_sequence());
  Side engine_side(engine, std::move(own));
  Side reference_side(*exact, std::move(exact_own));

  LayerReport report;
  report.numerics = engine.numerics_name();
  report.limit = layer_limit(engine.ops().profile);
  LayerVerifier verifier(engine.spec(), engine_side, reference_side, options, &report);
  const std::vector<int32_t> tokens = random_tokens(options.prefill_tokens + options.decode_tokens,
                                                    engine.spec().vocab_size, options.seed);
  const std::span<const int32_t> all(tokens);
  const auto prompt = static_cast<size_t>(options.prefill_tokens);
  MOTLEY_RETURN_IF_ERROR(verifier.run_rows(RowRole::kPrefill, all.first(prompt), 0));
  for (size_t i = prompt; i < tokens.size(); ++i) {
    MOTLEY_RETURN_IF_ERROR(
        verifier.run_rows(RowRole::kDecode, all.subspan(i, 1), static_cast<int64_t>(i)));
  }
  return report;
}

}  // namespace motley
