// What config.json of a new checkpoint says about its quantisation.
// Sources: ml-explore/mlx-lm; transformers' finegrained_fp8; NVIDIA Model-Optimizer's
// hf_quant_config; vllm-project/compressed-tensors.
#pragma once

#include <vector>

#include "io/convert/format_request.h"
#include "io/convert/module_plan.h"
#include "spec/config_json.h"

namespace motley {

// `config` with the quantization of the new checkpoint in place of the old one's.
JsonValue with_quantization(JsonValue config, const FormatRequest& request,
                            const std::vector<ModulePlan>& plans);

}  // namespace motley
