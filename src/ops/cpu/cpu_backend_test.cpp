#include "ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace motley {
namespace {

TEST(CpuBackend, PortableIsAlwaysThereAndOrderAscends) {
  const std::vector<CpuIsa> isas = available_cpu_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), CpuIsa::kPortable);
  for (size_t i = 1; i < isas.size(); ++i) EXPECT_LT(isas[i - 1], isas[i]);
}

TEST(CpuBackend, EveryAvailableSetCanBeChosenByName) {
  for (const CpuIsa isa : available_cpu_isas()) {
    Result<CpuIsa> chosen = choose_cpu_isa(cpu_isa_name(isa));
    ASSERT_TRUE(chosen.is_ok());
    EXPECT_EQ(*chosen, isa);
    EXPECT_EQ(cpu_op_table(isa, NumericProfile::kFast).name,
              "cpu/" + std::string(cpu_isa_name(isa)));
  }
}

TEST(CpuBackend, NoOpIsMissing) {
  EXPECT_TRUE(check_complete(reference_op_table(), OpNeeds::all()).is_ok());
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
      const OpTable table = cpu_op_table(isa, profile);
      const Status status = check_complete(table, OpNeeds::all());
      EXPECT_TRUE(status.is_ok()) << status.message();
      EXPECT_EQ(table.profile, profile);
    }
  }
}

TEST(CpuBackend, UnknownAndMissingSetsAreNamed) {
  const Result<CpuIsa> unknown = choose_cpu_isa("mmx");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("\"mmx\""), std::string::npos);
#if defined(__x86_64__)
  const std::string_view foreign = "neon";
#else
  const std::string_view foreign = "avx2";
#endif
  const Result<CpuIsa> missing = choose_cpu_isa(foreign);
  EXPECT_EQ(missing.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(missing.status().message().find("portable"), std::string::npos);
}

TEST(CpuBackend, EnvironmentChoosesWhenNothingIsAsked) {
  setenv("MOTLEY_CPU", "portable", 1);
  EXPECT_EQ(choose_cpu_isa("").value(), CpuIsa::kPortable);
  EXPECT_EQ(choose_cpu_isa(cpu_isa_name(available_cpu_isas().back())).value(),
            available_cpu_isas().back());
  unsetenv("MOTLEY_CPU");
  EXPECT_EQ(choose_cpu_isa("").value(), available_cpu_isas().back());
}

}  // namespace
}  // namespace motley
