#include "ops/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/linear_ops.h"

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

// An op with its table of kernels fixed: what an OpTable holds.
template <auto function, const CpuKernels& kernels>
struct Bound;
template <typename... Args, void (*function)(const CpuKernels&, Stream&, Args...),
          const CpuKernels& kernels>
struct Bound<function, kernels> {
  static void call(Stream& stream, Args... args) { function(kernels, stream, args...); }
};

template <const CpuKernels& kernels>
void fill_ops(OpTable* table) {
  table->norm = {Bound<cpu_rms_norm, kernels>::call,
                 Bound<cpu_gated_rms_norm, kernels>::call,
                 Bound<cpu_add, kernels>::call,
                 Bound<cpu_silu_multiply, kernels>::call,
                 Bound<cpu_sigmoid_multiply, kernels>::call,
                 Bound<cpu_add_bias, kernels>::call,
                 Bound<cpu_zero_rows, kernels>::call};
  table->convolution = {Bound<cpu_causal_convolution, kernels>::call,
                        Bound<cpu_commit_window, kernels>::call};
  table->gated_delta = {
      Bound<cpu_delta_recurrent, kernels>::call, Bound<cpu_delta_chunked, kernels>::call,
      Bound<cpu_delta_flush_carry, kernels>::call, Bound<cpu_delta_commit, kernels>::call};
  table->channel_delta = {
      Bound<cpu_channel_recurrent, kernels>::call, Bound<cpu_channel_chunked, kernels>::call,
      Bound<cpu_channel_flush_carry, kernels>::call, Bound<cpu_channel_commit, kernels>::call};
  table->hyper = {Bound<cpu_hyper_mix, kernels>::call, Bound<cpu_hyper_merge, kernels>::call,
                  Bound<cpu_hyper_spread, kernels>::call, Bound<cpu_hyper_mean, kernels>::call};
  table->index_pool = {Bound<cpu_pool_keys, kernels>::call, host_pool_tokens};
  table->swiglu_limit = true;
  table->attention = {Bound<cpu_head_norm_rotary, kernels>::call,
                      Bound<cpu_cache_write, kernels>::call, Bound<cpu_attend, kernels>::call,
                      Bound<cpu_attention_merge, kernels>::call};
  table->latent = {Bound<cpu_latent_rotate, kernels>::call, Bound<cpu_row_write, kernels>::call,
                   Bound<cpu_head_linear, kernels>::call, Bound<cpu_latent_attend, kernels>::call};
  table->index = {Bound<cpu_layer_norm, kernels>::call, Bound<cpu_index_scores, kernels>::call,
                  Bound<cpu_index_select, kernels>::call};
  table->moe.route_sigmoid = Bound<cpu_route_sigmoid, kernels>::call;
  table->moe.route_softmax = Bound<cpu_route_softmax, kernels>::call;
  table->moe.combine = Bound<cpu_combine, kernels>::call;
}

// The tile unit of AMX is for matrix products; everything else runs as AVX-512 there.
void fill_ops_for(CpuIsa isa, OpTable* table) {
  switch (isa) {
    case CpuIsa::kPortable:
      return fill_ops<kCpuKernelsPortable>(table);
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return fill_ops<kCpuKernelsAvx2>(table);
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:
      return fill_ops<kCpuKernelsAvx512>(table);
#elif defined(__aarch64__)
    case CpuIsa::kNeon:
      return fill_ops<kCpuKernelsNeon>(table);
#endif
    default:
      MOTLEY_CHECK(false, "an instruction set of another machine");
  }
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
  fill_ops_for(isa, &table);
  table.linear = cpu_linear_ops(isa, profile);
  table.moe.experts = cpu_experts(isa, profile);
  return table;
}

}  // namespace motley
