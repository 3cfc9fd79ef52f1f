// Helpers of the CPU op tests: one test body runs for every instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/cpu_kernels.h"
#include "ops/op_test_util.h"

namespace motley {

inline const CpuKernels& test_kernels(CpuIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case CpuIsa::kAvx2:
      return kCpuKernelsAvx2;
    case CpuIsa::kAvx512:
    case CpuIsa::kAmx:
      return kCpuKernelsAvx512;
#elif defined(__aarch64__)
    case CpuIsa::kNeon:
      return kCpuKernelsNeon;
#endif
    default:
      return kCpuKernelsPortable;
  }
}

class CpuOpsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  OpTable table_ = cpu_op_table(GetParam(), NumericProfile::kExact);
  OpTable reference_ = reference_op_table();
  TestStream stream_{2};
};

inline std::string isa_test_name(const testing::TestParamInfo<CpuIsa>& info) {
  return std::string(cpu_isa_name(info.param));
}

}  // namespace motley

#define MOTLEY_TEST_EACH_CPU(suite) \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, testing::ValuesIn(available_cpu_isas()), isa_test_name)
