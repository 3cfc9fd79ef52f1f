#include "spec/quantization_claim.h"

#include <gmock/gmock.h>

#include "spec/quantization_config.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

Result<QuantizationConfig> read(const std::string& members) {
  const auto config = ConfigJson::parse("{\"quantization_config\":{" + members + "}}", "c.json");
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return read_quantization_config(*config);
}

std::string message(const std::string& members) {
  return read(members).status().message();
}

TEST(QuantizationClaim, EveryMethodNamesItsFormats) {
  const auto fp8 = read(R"("quant_method":"fp8","weight_block_size":[128,128],)"
                        R"("modules_to_not_convert":["lm_head","a.gate"])");
  ASSERT_TRUE(fp8.is_ok() && fp8->claim) << fp8.status().message();
  EXPECT_EQ(fp8->claim->kind_names(), "fp8");
  EXPECT_TRUE(fp8->claim->excluded.contains("a.gate"));
  EXPECT_FALSE(fp8->format_of("a").has_value()) << "no MLX format follows from it";

  const auto modelopt = read(R"("quant_method":"modelopt","quant_algo":"NVFP4","ignore":["x*"])");
  ASSERT_TRUE(modelopt.is_ok() && modelopt->claim) << modelopt.status().message();
  EXPECT_TRUE(modelopt->claim->allows(FloatKind::kNvfp4));
  EXPECT_FALSE(modelopt->claim->allows(FloatKind::kFp8));

  const auto packed =
      read(R"("quant_method":"compressed-tensors","format":"mxfp4-pack-quantized")");
  ASSERT_TRUE(packed.is_ok() && packed->claim) << packed.status().message();
  EXPECT_EQ(packed->claim->kind_names(), "mxfp4");
  const auto mixed = read(R"("quant_method":"compressed-tensors","format":"mixed-precision")");
  EXPECT_EQ(mixed->claim->kind_names(), "fp8 or nvfp4 or mxfp4");
  EXPECT_EQ(read(R"("quant_method":"mxfp4")")->claim->kind_names(), "mxfp4");
}

TEST(QuantizationClaim, RefusesByName) {
  EXPECT_THAT(message(R"("quant_method":"awq")"),
              HasSubstr("quantization_config.quant_method: \"awq\" is not supported"));
  EXPECT_THAT(message(R"("quant_method":"fp8","weight_block_size":[64,128])"),
              HasSubstr("weight_block_size: blocks of 64 x 128 are not supported"));
  EXPECT_THAT(message(R"("quant_method":"fp8","weight_block_size":["x"])"),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(message(R"("quant_method":"modelopt")"), HasSubstr("quant_algo: is missing"));
  EXPECT_THAT(message(R"("quant_method":"modelopt","quant_algo":"INT4_AWQ")"),
              HasSubstr("quant_algo: \"INT4_AWQ\" is not supported; FP8,"));
  EXPECT_THAT(message(R"("quant_method":"compressed-tensors","format":"pack-quantized")"),
              HasSubstr("format: \"pack-quantized\" is not supported"));
  EXPECT_THAT(message(R"("quant_method":"fp8","ignored_layers":[1])"),
              HasSubstr("ignored_layers: must be a list of strings"));
}

}  // namespace
}  // namespace motley
