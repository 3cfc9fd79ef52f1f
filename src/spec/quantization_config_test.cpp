#include "spec/quantization_config.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

using ::testing::HasSubstr;

Result<QuantizationConfig> read(const std::string& text) {
  const auto config = ConfigJson::parse(text, "config.json");
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return read_quantization_config(*config);
}

TEST(QuantizationConfig, DefaultAndOverrides) {
  const auto config = read(R"({"quantization":{"group_size":64,"bits":4,"mode":"affine",)"
                           R"("a.gate":{"group_size":32,"bits":8},"a.fc":false,"a.up":true},)"
                           R"("quantization_config":{"group_size":64,"bits":4,"mode":"affine",)"
                           R"("a.gate":{"group_size":32,"bits":8},"a.fc":false,"a.up":true}})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->format_of("x"), (MlxAffineFormat{4, 64}));
  EXPECT_EQ(config->format_of("a.gate"), (MlxAffineFormat{8, 32}));
  EXPECT_EQ(config->format_of("a.up"), (MlxAffineFormat{4, 64}));
  EXPECT_FALSE(config->format_of("a.fc").has_value());
  EXPECT_TRUE(config->requires_quantized("a.gate"));
  EXPECT_FALSE(config->requires_quantized("a.fc"));
  EXPECT_FALSE(config->requires_quantized("x"));
}

TEST(QuantizationConfig, AbsentOrOnlyTheDuplicate) {
  EXPECT_FALSE(read("{}")->format_of("x").has_value());
  EXPECT_EQ(read(R"({"quantization_config":{"group_size":128,"bits":3}})")->format_of("x"),
            (MlxAffineFormat{3, 128}));
}

TEST(QuantizationConfig, RefusesByName) {
  const auto message = [](const std::string& text) { return read(text).status().message(); };
  EXPECT_THAT(
      message(R"({"quantization_config":{"quant_method":"gptq"}})"),
      HasSubstr("quantization_config.quant_method: \"gptq\" is not supported; fp8, modelopt"));
  EXPECT_THAT(message(R"({"quantization_config":{"quant_method":7}})"), HasSubstr("quant_method"));
  EXPECT_THAT(message(R"({"quantization_config":{"quant_method":"fp8"},)"
                      R"("quantization":{"group_size":64,"bits":4}})"),
              HasSubstr("has a quant_method beside quantization"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64,"bits":7}})"), HasSubstr("7 bits"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":48,"bits":4}})"), HasSubstr("groups of 48"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64,"bits":0}})"), HasSubstr("bits"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64}})"), HasSubstr("bits: is missing"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":32,"bits":4,"mode":"mxfp4"}})"),
              HasSubstr("mode: \"mxfp4\" is not supported"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64,"bits":4,"a.b":5}})"),
              HasSubstr("quantization.a.b"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64,"bits":4,"a.b":{"bits":4}}})"),
              HasSubstr("quantization.a.b.group_size: is missing"));
  EXPECT_THAT(message(R"({"quantization":{"group_size":64,"bits":4},)"
                      R"("quantization_config":{"group_size":64,"bits":8}})"),
              HasSubstr("contradicts"));
  EXPECT_THAT(message(R"({"quantization":[4,64]})"), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace motley
