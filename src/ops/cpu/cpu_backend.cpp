#include "ops/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>

#include "ops/cpu/cpu_features.h"

namespace motley {
namespace {

constexpr CpuIsa kAllIsas[] = {CpuIsa::kPortable, CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512,
                               CpuIsa::kAmx};

bool is_available(const CpuFeatures& features, CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return true;
    case CpuIsa::kNeon:
      return features.neon;
    case CpuIsa::kAvx2:
      return features.avx2;
    case CpuIsa::kAvx512:
      return features.avx512;
    case CpuIsa::kAmx:
      return features.amx;
  }
  return false;
}

std::string join_names(const std::vector<CpuIsa>& isas) {
  std::string names;
  for (const CpuIsa isa : isas) {
    if (!names.empty()) names += ", ";
    names += cpu_isa_name(isa);
  }
  return names;
}

}  // namespace

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kNeon:
      return "neon";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAmx:
      return "amx";
  }
  return "?";
}

std::vector<CpuIsa> available_cpu_isas() {
  const CpuFeatures features = read_cpu_features();
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : kAllIsas) {
    if (is_available(features, isa)) isas.push_back(isa);
  }
  return isas;
}

Result<CpuIsa> choose_cpu_isa(std::string_view wanted) {
  const std::vector<CpuIsa> available = available_cpu_isas();
  if (wanted.empty()) {
    const char* from_environment = std::getenv("MOTLEY_CPU");
    if (from_environment == nullptr || *from_environment == '\0') return available.back();
    wanted = from_environment;
  }
  for (const CpuIsa isa : kAllIsas) {
    if (cpu_isa_name(isa) != wanted) continue;
    if (std::find(available.begin(), available.end(), isa) != available.end()) return isa;
    return unsupported("instruction set \"" + std::string(wanted) +
                       "\" is not available here; this machine can run " + join_names(available));
  }
  return invalid_argument("unknown instruction set \"" + std::string(wanted) + "\"; use one of " +
                          join_names({std::begin(kAllIsas), std::end(kAllIsas)}));
}

OpTable cpu_op_table(CpuIsa isa, NumericProfile profile) {
  OpTable table;
  table.name = "cpu/" + std::string(cpu_isa_name(isa));
  table.profile = profile;
  table.activation_dtype = DType::kF32;
  table.space = MemorySpace::kHost;
  return table;
}

}  // namespace motley
