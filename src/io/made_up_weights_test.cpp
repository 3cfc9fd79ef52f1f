#include "io/made_up_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/owned_context.h"
#include "support/model_files.h"

namespace motley {
namespace {

struct MadeUp {
  ModelSpec spec;
  LoadedWeights weights;
};

Result<MadeUp> make(Context& context, const TestModelOptions& options, int64_t most_rows,
                    int64_t most_copies) {
  const TemporaryDirectory directory;
  write_model(TestModel(options), directory);
  MOTLEY_ASSIGN_OR_RETURN(OpenedModel model, open_model(context, directory.path()));
  std::vector<MadeUpTensor> tensors;
  tensors.reserve(model.spec.tensors.size());
  for (size_t i = 0; i < model.spec.tensors.size(); ++i) {
    tensors.push_back({{static_cast<int32_t>(i)}, most_rows, most_copies});
  }
  MOTLEY_ASSIGN_OR_RETURN(LoadedWeights weights,
                          make_up_weights(context, model.spec, model.quantization,
                                          std::move(model.checkpoint), tensors));
  return MadeUp{std::move(model.spec), std::move(weights)};
}

TestModelOptions formats(int index) {
  if (index == 0) return {};
  if (index == 1) return {.mlx = true, .quantized = MlxAffineFormat{4, 32}};
  return {.mlx = true, .quantized = MlxAffineFormat{8, 32}};
}

TEST(MadeUpWeights, HaveTheModelsShapesAndFormatsAndFiniteValues) {
  OwnedContext context(test_threads());
  for (int format = 0; format < 3; ++format) {
    auto made = make(context.get(), formats(format), 0, 0);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    const ModelSpec& spec = made->spec;
    const auto& moe = std::get<MoeSpec>(spec.layers[0].feed_forward);
    const WeightMatrix& down = made->weights.expert(moe.down, moe.experts - 1);
    EXPECT_EQ(down.rows, spec.hidden_size);
    EXPECT_EQ(down.cols, moe.intermediate_size);
    EXPECT_EQ(down.format == WeightFormat::kMlxAffine, format > 0);
    std::set<float> seen;
    std::vector<float> row(static_cast<size_t>(down.cols));
    for (int64_t i = 0; i < down.rows; ++i) {
      decode_row(down, i, row.data());
      for (const float value : row) {
        ASSERT_LE(std::abs(value), 0.051f);
        seen.insert(value);
      }
    }
    EXPECT_GT(seen.size(), 8U);
    // Rows of a router differ, or it would choose by ties.
    const WeightMatrix& router = made->weights.matrix(moe.router);
    std::vector<float> first(static_cast<size_t>(router.cols));
    std::vector<float> second(first);
    decode_row(router, 0, first.data());
    decode_row(router, 1, second.data());
    EXPECT_NE(first, second);
    const ConstTensorView norm = made->weights.vector(spec.final_norm.weight);
    EXPECT_EQ(norm.shape, (Shape{spec.hidden_size}));
  }
}

TEST(MadeUpWeights, AreAsFewAsWanted) {
  OwnedContext context(test_threads());
  auto made = make(context.get(), formats(1), 3, 2);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  EXPECT_EQ(made->weights.matrix(made->spec.head).rows, 3);
  const auto& moe = std::get<MoeSpec>(made->spec.layers[0].feed_forward);
  EXPECT_EQ(made->weights.expert(moe.gate, 1).rows, 3);
  EXPECT_NE(made->weights.expert(moe.gate, 0).codes.data,
            made->weights.expert(moe.gate, 1).codes.data);
  auto whole = make(context.get(), formats(1), 0, 0);
  ASSERT_TRUE(whole.is_ok());
  EXPECT_LT(made->weights.copied_bytes(), whole->weights.copied_bytes());
}

}  // namespace
}  // namespace motley
