#include "cli/environment.h"

#include <gtest/gtest.h>

#include <vector>

namespace motley {
namespace {

const OptionSpec kThreads = {
    .name = "threads", .type = OptionType::kInteger, .default_value = "1", .least = 1};
const OptionSpec kPrefillChunk = {.name = "prefill-chunk", .type = OptionType::kInteger};
const OptionSpec kJson = {.name = "json"};

std::vector<VerbSpec> verbs() {
  return {{.name = "run", .options = {kThreads, kJson}},
          {.name = "bench model", .options = {kPrefillChunk}}};
}

TEST(Environment, ReadsOnlyItsOwnVariables) {
  const char* entries[] = {"PATH=/bin", "MOTLEY_JSON=1", "MOTLEY_A=b=c", "MOTLEYX=1", nullptr};
  EXPECT_EQ(read_environment(entries), (Environment{{"MOTLEY_JSON", "1"}, {"MOTLEY_A", "b=c"}}));
}

TEST(Environment, NamesFollowFromFlags) {
  EXPECT_EQ(environment_name(kPrefillChunk), "MOTLEY_PREFILL_CHUNK");
  OptionSpec own = kThreads;
  own.environment = "MOTLEY_OWN";
  EXPECT_EQ(environment_name(own), "MOTLEY_OWN");
}

TEST(Environment, AnUnknownVariableIsNamedWithTheClosest) {
  EXPECT_TRUE(check_environment({{"MOTLEY_THREADS", "2"}}, verbs()).is_ok());
  EXPECT_EQ(check_environment({{"MOTLEY_TREADS", "2"}}, verbs()).message(),
            "environment variable MOTLEY_TREADS is not known; did you mean MOTLEY_THREADS?");
  EXPECT_EQ(check_environment({{"MOTLEY_COLOUR_SCHEME", ""}}, verbs()).message(),
            "environment variable MOTLEY_COLOUR_SCHEME is not known");
}

TEST(Environment, FlagsWinAndEmptyMeansUnset) {
  const VerbSpec run = verbs()[0];
  OptionValues values;
  ASSERT_TRUE(apply_environment({{"MOTLEY_THREADS", ""}}, run, &values).is_ok());
  EXPECT_FALSE(values.given(kThreads));
  ASSERT_TRUE(apply_environment({{"MOTLEY_THREADS", "4"}}, run, &values).is_ok());
  EXPECT_EQ(values.integer(kThreads), 4);
  EXPECT_EQ(values.source(kThreads), "MOTLEY_THREADS");
  ASSERT_TRUE(apply_environment({{"MOTLEY_THREADS", "8"}}, run, &values).is_ok());
  EXPECT_EQ(values.integer(kThreads), 4);
}

TEST(Environment, VariablesOfOtherVerbsAreLeftAlone) {
  OptionValues values;
  EXPECT_TRUE(apply_environment({{"MOTLEY_PREFILL_CHUNK", "zero"}}, verbs()[0], &values).is_ok());
}

TEST(Environment, AWrongValueNamesTheVariable) {
  OptionValues values;
  EXPECT_EQ(apply_environment({{"MOTLEY_THREADS", "many"}}, verbs()[0], &values).message(),
            "MOTLEY_THREADS needs a whole number, not \"many\"");
}

}  // namespace
}  // namespace motley
