// A layer of Kimi delta attention, a dense feed-forward with a limit and four residual streams
// against what the reference implementation computed with the same weights: layer 0 of the fixture.
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "model/channel_delta_test_util.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

constexpr int64_t kTinyHidden = 128, kTinyHeads = 4, kTinyDim = 32, kTinyStreams = 4;
constexpr const char* kPrefix = "model.language_model.";

std::string fixture() {
  return std::string(MOTLEY_SOURCE_DIR) + "/../shared/fixtures/tiny-glm53";
}

TensorHandle tiny(ModelSpec* spec, TensorRole role, Shape shape, const std::string& leaf,
                  bool bare = false) {
  return add_one(spec, role, shape, kPrefix + leaf, bare);
}

HyperConnectionSpec tiny_site(ModelSpec* spec, const std::string& name) {
  const std::string leaf = "layers.0.hc_" + name;
  constexpr int64_t kCount = kTinyStreams * (2 + kTinyStreams);
  return {.fn = tiny(spec, TensorRole::kTable, {kCount, kTinyStreams * kTinyHidden}, leaf + "_fn",
                     true),
          .base = tiny(spec, TensorRole::kVector, {kCount}, leaf + "_base", true),
          .scale = tiny(spec, TensorRole::kVector, {3}, leaf + "_scale", true)};
}

ChannelDeltaSpec tiny_mixer(ModelSpec* spec) {
  const std::string leaf = "layers.0.self_attn.";
  constexpr int64_t kWidth = kTinyHeads * kTinyDim;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    return tiny(spec, TensorRole::kMatrix, {rows, cols}, leaf + name);
  };
  const auto part = [&](const char* name) {
    return TensorPiece{.module = kPrefix + leaf + name, .row_count = kWidth};
  };
  ChannelDeltaSpec kimi{
      .heads = kTinyHeads, .key_head_dim = kTinyDim, .value_head_dim = kTinyDim, .conv_kernel = 4};
  kimi.q_proj = matrix("q_proj", kWidth, kTinyHidden);
  kimi.k_proj = matrix("k_proj", kWidth, kTinyHidden);
  kimi.v_proj = matrix("v_proj", kWidth, kTinyHidden);
  kimi.convolution = add_tensor(spec, TensorRole::kConvolution, {3 * kWidth, 4},
                                {part("q_conv1d"), part("k_conv1d"), part("v_conv1d")});
  kimi.decay_in_proj = matrix("f_a_proj", kTinyDim, kTinyHidden);
  kimi.decay_proj = matrix("f_b_proj", kWidth, kTinyDim);
  kimi.a_log = tiny(spec, TensorRole::kVector, {kTinyHeads}, leaf + "A_log", true);
  kimi.dt_bias = tiny(spec, TensorRole::kVector, {kWidth}, leaf + "dt_bias", true);
  kimi.beta_proj = matrix("b_proj", kTinyHeads, kTinyHidden);
  kimi.gate_in_proj = matrix("g_a_proj", kTinyDim, kTinyHidden);
  kimi.gate_proj = matrix("g_b_proj", kWidth, kTinyDim);
  kimi.norm = {.weight = tiny(spec, TensorRole::kVector, {kTinyDim}, leaf + "o_norm"),
               .epsilon = 1e-5f};
  kimi.out_proj = matrix("o_proj", kTinyHidden, kWidth);
  return kimi;
}

ModelSpec tiny_spec() {
  ModelSpec spec{.hidden_size = kTinyHidden, .vocab_size = 512, .context_length = 4096};
  spec.residual = {.streams = kTinyStreams, .norm_epsilon = 1e-5f};
  const auto norm = [&](const std::string& leaf) {
    return NormSpec{.weight = tiny(&spec, TensorRole::kVector, {kTinyHidden}, leaf),
                    .epsilon = 1e-5f};
  };
  spec.embedding = tiny(&spec, TensorRole::kMatrix, {512, kTinyHidden}, "embed_tokens");
  LayerSpec layer{.residual = ResidualKind::kStreams};
  layer.mixer_norm = norm("layers.0.input_layernorm");
  layer.mixer = tiny_mixer(&spec);
  layer.feed_forward_norm = norm("layers.0.post_attention_layernorm");
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    return tiny(&spec, TensorRole::kMatrix, {rows, cols}, std::string("layers.0.mlp.") + name);
  };
  layer.feed_forward = DenseMlpSpec{.intermediate_size = 256,
                                    .swiglu_limit = 10.0f,
                                    .gate = matrix("gate_proj", 256, kTinyHidden),
                                    .up = matrix("up_proj", 256, kTinyHidden),
                                    .down = matrix("down_proj", kTinyHidden, 256)};
  layer.mixer_hyper = tiny_site(&spec, "attn");
  layer.feed_forward_hyper = tiny_site(&spec, "ffn");
  spec.layers.push_back(layer);
  spec.final_norm = norm("norm");
  spec.head = add_one(&spec, TensorRole::kMatrix, {512, kTinyHidden}, "lm_head");
  for (int other = 1; other <= 8; ++other) {
    spec.skipped.push_back(
        {kPrefix + std::string("layers.") + std::to_string(other) + ".", "not of this test"});
  }
  return spec;
}

// What the reference computed.
class Expected {
 public:
  explicit Expected(Context& context)
      : file_(MappedFile::map(context.faults, File::open(context.faults, path_).value()).value()),
        header_(read_safetensors_header(file_.bytes()).value()) {}

  template <typename T>
  std::vector<T> values(const std::string& name) const {
    const auto found =
        std::find_if(header_.tensors.begin(), header_.tensors.end(),
                     [&](const SafetensorsEntry& entry) { return entry.name == name; });
    MOTLEY_CHECK(found != header_.tensors.end(), name);
    std::vector<T> result(static_cast<size_t>(found->end - found->begin) / sizeof(T));
    std::memcpy(result.data(), file_.bytes().data() + header_.data_start + found->begin,
                result.size() * sizeof(T));
    return result;
  }

 private:
  const std::string path_ = fixture() + "/expected.safetensors";
  MappedFile file_;
  SafetensorsHeader header_;
};

// The residual after the layer, all rows, as float64.
std::vector<double> run_layer(Context& context, const LoadedModel& model, OpTable table,
                              DeltaForm form, const std::vector<int32_t>& ids, int64_t chunk) {
  const bool is_reference = table.activation_dtype == DType::kF64;
  HostStream stream(context);
  const Topology topology = Topology::single();
  SingleCollective collective;
  StepContext step{table, stream, topology, collective};
  ResidentExpertStore store(model_experts(model.spec, model.weights));
  const Decoder decoder(model.spec, model.weights, store, form);
  const StateLayout layout = make_state_layout(
      model.spec,
      {.recurrent = table.activation_dtype, .chunked_delta = form == DeltaForm::kChunked});
  PagePool pool(context, int64_t{16} << 20);
  SequenceState state = SequenceState::create(layout, pool).value();
  StepObserver nobody;
  std::vector<double> result;
  const auto length = std::ssize(ids);
  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t rows = std::min(chunk, length - first);
    Batch batch;
    batch.add(RowRole::kPrefill, state,
              std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
              {first});
    EXPECT_TRUE(batch.reserve().is_ok());
    const Arena::Scope scope(stream.scratch());
    const TensorView hidden = step.scratch(decoder.residual_shape(rows));
    decoder.embed(step, batch.tokens, hidden);
    EXPECT_TRUE(decoder.run_layers(step, batch, hidden, nobody).is_ok());
    for (int64_t i = 0; i < hidden.shape.elements(); ++i) {
      result.push_back(is_reference ? hidden.as<double>()[i] : double{hidden.as<float>()[i]});
    }
  }
  return result;
}

TEST(TinyStreams, LayerZeroIsTheReferences) {
  OwnedContext context({.threads = 2, .pin = false});
  Result<Checkpoint> weights = Checkpoint::open(context.get(), fixture());
  if (!weights.is_ok()) GTEST_SKIP() << "no fixture: " << weights.status().message();
  OpenedModel opened{.config = ConfigJson::parse("{}", "config.json").value(),
                     .spec = tiny_spec(),
                     .quantization = {},
                     .generation = {},
                     .checkpoint = std::move(weights).value()};
  const Result<LoadedModel> model = load_model(context.get(), std::move(opened));
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const Expected file(context.get());
  const OpTable tables[] = {reference_op_table(),
                            cpu_op_table(choose_cpu_isa("").value(), NumericProfile::kExact)};
  for (const std::string label : {"short", "medium", "long"}) {
    const auto ids = file.values<int32_t>(label + ".ids");
    const auto want = file.values<float>(label + ".layer.0.out");
    double largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(double{value}));
    for (const OpTable& table : tables) {
      for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
        const auto got = run_layer(context.get(), *model, table, form, ids, 130);
        double error = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          const double value = got[got.size() - want.size() + i];
          error = std::max(error, std::abs(value - double{want[i]}) / largest);
        }
        // The file's own rounding is that of float32 in another order.
        EXPECT_LT(error, 1e-5) << label << " on " << table.name;
      }
    }
  }
}

}  // namespace
}  // namespace motley
