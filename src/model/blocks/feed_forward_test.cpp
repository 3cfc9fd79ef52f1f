// The mixture of experts and the dense feed-forward against their formulas, written out.
#include <algorithm>

#include "base/owned_context.h"
#include "model/blocks/dense_mlp.h"
#include "model/blocks/moe.h"
#include "model/model_test_util.h"

namespace motley {
namespace {

constexpr int kLayer = 2;

const MoeSpec& moe_of(const ModelSpec& spec) {
  return std::get<MoeSpec>(spec.layers[kLayer].feed_forward);
}

// The experts of a row, best first, and their softmax over all experts.
std::vector<std::pair<int, double>> ranked(const double* logits, int experts) {
  std::vector<std::pair<int, double>> result;
  double sum = 0;
  for (int e = 0; e < experts; ++e) sum += std::exp(logits[e]);
  for (int e = 0; e < experts; ++e) result.emplace_back(e, std::exp(logits[e]) / sum);
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

Rows expert_output(const MoeSpec& spec, const LoadedWeights& weights, int expert, const Rows& x) {
  return plain_mlp(weights.expert(spec.gate, expert), weights.expert(spec.up, expert),
                   weights.expert(spec.down, expert), x);
}

Rows shared_output(const MoeSpec& spec, const LoadedWeights& weights, const Rows& x) {
  Rows y = plain_mlp(weights.matrix(spec.shared_gate), weights.matrix(spec.shared_up),
                     weights.matrix(spec.shared_down), x);
  const Rows gate = times_transposed(weights.matrix(spec.shared_expert_gate), x);
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t i = 0; i < y.cols; ++i) y.row(r)[i] *= sigmoid(gate.row(r)[0]);
  }
  return y;
}

// `scores`: how each row weighs its experts, by [row][expert id]; absent experts do not count.
Rows weighted(const MoeSpec& spec, const LoadedWeights& weights, const Rows& x,
              const std::vector<std::vector<std::pair<int, double>>>& scores) {
  Rows y = shared_output(spec, weights, x);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (const auto& [expert, score] : scores[static_cast<size_t>(r)]) {
      const Rows part = expert_output(spec, weights, expert, x.slice(r, 1));
      for (int64_t i = 0; i < y.cols; ++i) y.row(r)[i] += score * part.row(0)[i];
    }
  }
  return y;
}

std::vector<std::vector<std::pair<int, double>>> chosen(const MoeSpec& spec,
                                                        const LoadedWeights& weights,
                                                        const Rows& x) {
  const Rows logits = times_transposed(weights.matrix(spec.router), x);
  std::vector<std::vector<std::pair<int, double>>> result;
  for (int64_t r = 0; r < x.rows; ++r) {
    auto row = ranked(logits.row(r), spec.experts);
    row.resize(static_cast<size_t>(spec.experts_per_token));
    double sum = 0;
    for (const auto& [expert, score] : row) sum += score;
    for (auto& [expert, score] : row) score /= spec.normalise ? sum : 1;
    result.push_back(std::move(row));
  }
  return result;
}

Rows run_moe(ModelUnderTest& model, Rows x, StepObserver& observer, ExpertStore* store = nullptr) {
  SequenceState state = model.new_state();
  const Batch batch = rows_of(state, x.rows, 0);
  const MoeBlock block(moe_of(model.spec()), model.weights(),
                       store == nullptr ? model.store() : *store, kLayer);
  Rows out(x.rows, x.cols);
  const Status status = block.run(model.step(), batch, x.view(), out.view(), observer, [] {});
  EXPECT_TRUE(status.is_ok()) << status.message();
  return out;
}

TEST(Moe, IsTheFormula) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  const Rows x = varied_rows(7, TestModel::kHidden, 1);
  const MoeSpec& spec = moe_of(model.spec());
  const auto scores = chosen(spec, model.weights(), x);
  // The case is worth something only if no expert has it all.
  EXPECT_LT(scores[0][0].second, 0.99);
  EXPECT_TRUE(
      rows_near(run_moe(model, x, nobody), weighted(spec, model.weights(), x, scores), 1e-9));
}

TEST(Moe, WeightsMayStayUnnormalised) {
  const TestModel files = mild_model({.next = true});
  ModelUnderTest model(files, files.config(R"(,"norm_topk_prob":false)"));
  StepObserver nobody;
  const Rows x = varied_rows(3, TestModel::kHidden, 2);
  const MoeSpec& spec = moe_of(model.spec());
  ASSERT_FALSE(spec.normalise);
  const auto scores = chosen(spec, model.weights(), x);
  EXPECT_LT(scores[0][0].second + scores[0][1].second, 0.99);
  EXPECT_TRUE(
      rows_near(run_moe(model, x, nobody), weighted(spec, model.weights(), x, scores), 1e-9));
}

TEST(Moe, RowsAloneEqualRowsTogether) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  const Rows x = varied_rows(9, TestModel::kHidden, 3);
  const Rows together = run_moe(model, x, nobody);
  for (int64_t r = 0; r < x.rows; ++r) {
    EXPECT_EQ(run_moe(model, x.slice(r, 1), nobody).values, together.slice(r, 1).values) << r;
  }
}

// A store that makes one expert available at a time: waves must not change a bit.
TEST(Moe, WavesDoNotChangeTheSum) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  const Rows x = varied_rows(9, TestModel::kHidden, 4);
  ResidentExpertStore narrow(model_experts(model.spec(), model.weights()), 1);
  EXPECT_EQ(run_moe(model, x, nobody, &narrow).values, run_moe(model, x, nobody).values);
}

class BrokenStore final : public ExpertStore {
 public:
  Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave, Meanwhile) override {
    asked.assign(wanted.begin(), wanted.end());
    return io_error("expert 1 of layer " + std::to_string(layer) + " cannot be read");
  }
  std::vector<int32_t> asked;
};

TEST(Moe, AnUnreadableExpertIsAnError) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  SequenceState state = model.new_state();
  Rows x = varied_rows(4, TestModel::kHidden, 5);
  const Batch batch = rows_of(state, x.rows, 0);
  BrokenStore store;
  const MoeBlock block(moe_of(model.spec()), model.weights(), store, kLayer);
  Rows out(x.rows, x.cols);
  const Status status = block.run(model.step(), batch, x.view(), out.view(), nobody, [] {});
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(), "expert 1 of layer 2 cannot be read");
  std::vector<int32_t> sorted = store.asked;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  EXPECT_EQ(store.asked, sorted) << "experts are asked for once, ascending";
}

// Sees the router's logits and the choice, and forces the choice of chosen rows.
class RouterObserver final : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  ConstTensorView router_scores(int layer, const Batch& batch,
                                const RouterScores& scores) override {
    const ConstTensorView& values = scores.logits;
    EXPECT_EQ(layer, kLayer);
    EXPECT_EQ(batch.rows(), values.rows());
    logits = Rows(values.rows(), values.cols());
    for (int64_t r = 0; r < values.rows(); ++r) {
      std::copy_n(values.row<double>(r), values.cols(), logits.row(r));
    }
    if (forced.empty()) return {};
    return view_of(forced.data(), {batch.rows(), 2});
  }
  void routing(int, const Batch&, const Routing& routing) override {
    const auto count = static_cast<size_t>(routing.experts.shape.elements());
    experts.assign(routing.experts.as<int32_t>(), routing.experts.as<int32_t>() + count);
    weights.assign(routing.weights.as<double>(), routing.weights.as<double>() + count);
  }
  std::vector<int32_t> forced;
  Rows logits;
  std::vector<int32_t> experts;
  std::vector<double> weights;
};

TEST(Moe, TheObserverSeesLogitsAndChoice) {
  ModelUnderTest model(mild_model());
  RouterObserver observer;
  const Rows x = varied_rows(6, TestModel::kHidden, 6);
  StepObserver nobody;
  EXPECT_EQ(run_moe(model, x, observer).values, run_moe(model, x, nobody).values)
      << "watching changes nothing";
  const MoeSpec& spec = moe_of(model.spec());
  EXPECT_TRUE(
      rows_near(observer.logits, times_transposed(model.weights().matrix(spec.router), x), 1e-12));
  const auto scores = chosen(spec, model.weights(), x);
  for (size_t r = 0; r < scores.size(); ++r) {
    auto by_id = scores[r];
    std::sort(by_id.begin(), by_id.end());
    for (size_t slot = 0; slot < 2; ++slot) {
      EXPECT_EQ(observer.experts[2 * r + slot], by_id[slot].first);
      EXPECT_NEAR(observer.weights[2 * r + slot], by_id[slot].second, 1e-9);
    }
  }
}

TEST(Moe, AForcedChoiceReplacesTheRouters) {
  ModelUnderTest model(mild_model());
  const Rows x = varied_rows(2, TestModel::kHidden, 7);
  const MoeSpec& spec = moe_of(model.spec());
  const Rows logits = times_transposed(model.weights().matrix(spec.router), x);
  auto scores = chosen(spec, model.weights(), x);
  // The two experts that row 0 likes least; row 1 stays free.
  const auto order = ranked(logits.row(0), spec.experts);
  const auto worst = std::pair(order[2], order[3]);
  const double sum = worst.first.second + worst.second.second;
  scores[0] = {{worst.first.first, worst.first.second / sum},
               {worst.second.first, worst.second.second / sum}};
  RouterObserver observer;
  observer.forced = {worst.first.first, worst.second.first, -1, -1};
  EXPECT_TRUE(
      rows_near(run_moe(model, x, observer), weighted(spec, model.weights(), x, scores), 1e-9));
}

// Numbers for which the order of a sum shows: ((big + small) - big) + shared loses `small`, any
// other order keeps it or loses something else.
TEST(Moe, SumsByAscendingIdThenTheSharedExpert) {
  const OpTable table = reference_op_table();
  OwnedContext context(test_threads());
  HostStream stream(context.get());
  std::vector<double> pairs = {1e17, 1.0, -1e17};
  std::vector<int32_t> experts = {0, 3, 9};
  std::vector<double> weights = {1, 1, 1};
  std::vector<double> shared = {1.0};
  const Routing routing{view_of(experts.data(), {1, 3}), view_of(weights.data(), {1, 3})};
  const TensorView out = view_of(shared.data(), {1, 1});
  table.moe.combine(stream, view_of(pairs.data(), {3, 1}), routing, out, out);
  EXPECT_EQ(shared[0], (1e17 + 1.0 - 1e17) + 1.0);
  EXPECT_NE(shared[0], 1.0 + 1e17 + 1.0 - 1e17) << "the case tells the orders apart";
}

TEST(Moe, ExpertsOneByOneAndStackedAreTheSame) {
  TestModel stacked = mild_model();
  TestModel separate = mild_model({.separate = true});
  // The same numbers under the other layout's names.
  for (int layer = 0; layer < TestModel::kLayers; ++layer) {
    const std::string from = stacked.prefix + "layers." + std::to_string(layer) + ".mlp.experts.";
    const auto& gate_up = stacked.tensors.at(from + "gate_up_proj").bytes;
    const auto& down = stacked.tensors.at(from + "down_proj").bytes;
    const size_t half = gate_up.size() / TestModel::kExperts / 2;
    const size_t whole = down.size() / TestModel::kExperts;
    for (size_t e = 0; e < TestModel::kExperts; ++e) {
      const auto piece = [](const std::vector<std::byte>& bytes, size_t begin, size_t count) {
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
        return std::vector<std::byte>(first, first + static_cast<std::ptrdiff_t>(count));
      };
      const std::string to = from + std::to_string(e) + ".";
      separate.tensors.at(to + "gate_proj.weight").bytes = piece(gate_up, 2 * e * half, half);
      separate.tensors.at(to + "up_proj.weight").bytes = piece(gate_up, (2 * e + 1) * half, half);
      separate.tensors.at(to + "down_proj.weight").bytes = piece(down, e * whole, whole);
    }
  }
  ModelUnderTest first(stacked);
  ModelUnderTest second(separate);
  StepObserver nobody;
  const Rows x = varied_rows(8, TestModel::kHidden, 8);
  EXPECT_EQ(run_moe(first, x, nobody).values, run_moe(second, x, nobody).values);
}

TestModel dense_model() {
  TestModel model = mild_model({.next = true, .draft = false});
  const std::string mlp = model.prefix + "layers.2.mlp.";
  for (auto tensor = model.tensors.begin(); tensor != model.tensors.end();) {
    tensor = tensor->first.starts_with(mlp) ? model.tensors.erase(tensor) : std::next(tensor);
  }
  model.add_plain(mlp + "gate_proj.weight", {96, TestModel::kHidden});
  model.add_plain(mlp + "up_proj.weight", {96, TestModel::kHidden});
  model.add_plain(mlp + "down_proj.weight", {TestModel::kHidden, 96});
  return model;
}

TEST(DenseMlp, IsTheFormula) {
  const TestModel files = dense_model();
  ModelUnderTest model(files, files.config(R"(,"mlp_only_layers":[2],"intermediate_size":96)"));
  const auto& spec = std::get<DenseMlpSpec>(model.spec().layers[kLayer].feed_forward);
  const DenseMlpBlock block(spec, model.weights());
  SequenceState state = model.new_state();
  Rows x = varied_rows(5, TestModel::kHidden, 9);
  const Batch batch = rows_of(state, x.rows, 0);
  Rows out(x.rows, x.cols);
  ASSERT_TRUE(block.run(model.step(), batch, x.view(), out.view()).is_ok());
  const LoadedWeights& weights = model.weights();
  EXPECT_TRUE(rows_near(
      out,
      plain_mlp(weights.matrix(spec.gate), weights.matrix(spec.up), weights.matrix(spec.down), x),
      1e-12));
}

// Layers without experts leave a gap in the store, so that a layer's number is its index there.
TEST(DenseMlp, HasNoExpertsInTheStore) {
  const TestModel files = dense_model();
  ModelUnderTest model(files, files.config(R"(,"mlp_only_layers":[2],"intermediate_size":96)"));
  const auto experts = model_experts(model.spec(), model.weights());
  ASSERT_EQ(experts.size(), 4u);
  EXPECT_EQ(experts[1].size(), 4u);
  EXPECT_TRUE(experts[2].empty());
  EXPECT_EQ(experts[3].size(), 4u);
}

}  // namespace
}  // namespace motley
