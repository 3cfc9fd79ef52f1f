#include "io/convert/quantization_json.h"

namespace motley {
namespace {

JsonValue text(std::string_view value) {
  return {std::string(value)};
}

bool is_matrix(const ModulePlan& plan) {
  return plan.role == TensorRole::kMatrix || plan.role == TensorRole::kExperts;
}

JsonValue format_json(const MlxAffineFormat& format) {
  return {JsonValue::Object{{"group_size", {int64_t{format.group_size}}},
                            {"bits", {int64_t{format.bits}}}}};
}

// The default and, for every module that differs, its own entry.
JsonValue affine_json(const FormatRequest& request, const std::vector<ModulePlan>& plans) {
  JsonValue result = format_json(request.standard);
  auto& members = std::get<JsonValue::Object>(result.data);
  members.push_back({"mode", text("affine")});
  for (const ModulePlan& plan : plans) {
    if (!is_matrix(plan) || plan.format == request.standard) continue;
    members.push_back({plan.module, plan.format ? format_json(*plan.format) : JsonValue{false}});
  }
  return result;
}

// Matrices that keep their numbers, by name.
JsonValue excluded_json(const std::vector<ModulePlan>& plans) {
  JsonValue::Array names;
  for (const ModulePlan& plan : plans) {
    if (is_matrix(plan) && !plan.spelling) names.push_back(text(plan.module));
  }
  return {std::move(names)};
}

// One group of modules: every linear one, weights alone.
JsonValue groups_json(const BlockFloatFormat& format, std::string_view strategy) {
  const JsonValue weights{JsonValue::Object{{"num_bits", {int64_t{4}}},
                                            {"type", text("float")},
                                            {"strategy", text(strategy)},
                                            {"group_size", {format.block_cols}},
                                            {"symmetric", {true}},
                                            {"dynamic", {false}}}};
  const JsonValue group{
      JsonValue::Object{{"targets", {JsonValue::Array{text("Linear")}}}, {"weights", weights}}};
  return {JsonValue::Object{{"group_0", group}}};
}

JsonValue packed_json(std::string_view format, JsonValue groups,
                      const std::vector<ModulePlan>& plans) {
  return {JsonValue::Object{{"quant_method", text("compressed-tensors")},
                            {"format", text(format)},
                            {"quantization_status", text("compressed")},
                            {"config_groups", std::move(groups)},
                            {"ignore", excluded_json(plans)}}};
}

JsonValue block_json(FloatSpelling spelling, const std::vector<ModulePlan>& plans) {
  switch (spelling) {
    case FloatSpelling::kFp8:
      return {JsonValue::Object{
          {"quant_method", text("fp8")},
          {"activation_scheme", text("dynamic")},
          {"weight_block_size", {JsonValue::Array{{int64_t{128}}, {int64_t{128}}}}},
          {"modules_to_not_convert", excluded_json(plans)}}};
    case FloatSpelling::kNvfp4:
      return {JsonValue::Object{{"quant_method", text("modelopt")},
                                {"quant_algo", text("NVFP4")},
                                {"config_groups", groups_json(kNvfp4Block, "tensor_group")},
                                {"ignore", excluded_json(plans)}}};
    case FloatSpelling::kNvfp4Packed:
      return packed_json("nvfp4-pack-quantized", groups_json(kNvfp4Block, "tensor_group"), plans);
    case FloatSpelling::kMxfp4Packed:
      break;
  }
  return packed_json("mxfp4-pack-quantized", groups_json(kMxfp4Block, "group"), plans);
}

}  // namespace

JsonValue with_quantization(JsonValue config, const FormatRequest& request,
                            const std::vector<ModulePlan>& plans) {
  auto& members = std::get<JsonValue::Object>(config.data);
  std::erase_if(members, [](const auto& member) {
    return member.first == "quantization" || member.first == "quantization_config";
  });
  if (request.layout == CheckpointLayout::kMlx) {
    const JsonValue quantization = affine_json(request, plans);
    members.push_back({"quantization", quantization});
    members.push_back({"quantization_config", quantization});
  } else if (request.spelling) {
    members.push_back({"quantization_config", block_json(*request.spelling, plans)});
  }
  return config;
}

}  // namespace motley
