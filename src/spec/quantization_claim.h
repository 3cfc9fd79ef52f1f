// What config.json claims about block-scaled floats: `quantization_config` with a "quant_method".
//
// The tensors decide the format of each module (spec/block_float_names.h); the claim is only held
// against them, and a contradiction is refused. Methods: fp8 (weight_block_size, modules_to_not_
// convert), modelopt (quant_algo, ignore), compressed-tensors (format, config_groups, ignore),
// mxfp4. Lists of modules that are not quantised may hold patterns, of which none is used: only
// names that are one module's are checked.
// Thread rule: an immutable value. Errors: kUnsupported for another method or format.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/block_float_names.h"
#include "spec/config_json.h"

namespace motley {

struct QuantizationClaim {
  std::string method;                           // as the file has it
  std::vector<FloatKind> kinds;                 // that modules may have
  std::set<std::string, std::less<>> excluded;  // modules that are not quantised

  bool allows(FloatKind kind) const;
  // "fp8", "fp8 or nvfp4"
  std::string kind_names() const;
};

// `object` is quantization_config and has a quant_method.
Result<QuantizationClaim> read_quantization_claim(const ConfigObject& object);

}  // namespace motley
