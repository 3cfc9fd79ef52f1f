// The CPU backend: one translation unit per instruction set, chosen at run time.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/op_table.h"

namespace motley {

// In ascending order of preference.
enum class CpuIsa { kPortable, kNeon, kAvx2, kAvx512, kAmx };
std::string_view cpu_isa_name(CpuIsa isa);

// Sets this program was built with and this machine can run, in ascending order of preference.
// kPortable is always there.
std::vector<CpuIsa> available_cpu_isas();

// `wanted` is the value of --cpu ("avx2", ...); empty means the environment variable MOTLEY_CPU,
// and without that the best available. kInvalidArgument for an unknown name, kUnsupported for a set
// this machine lacks.
Result<CpuIsa> choose_cpu_isa(std::string_view wanted);

// isa must be available.
OpTable cpu_op_table(CpuIsa isa, NumericProfile profile);

}  // namespace motley
