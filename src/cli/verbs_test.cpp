// Rules that the tables of all verbs keep, whoever adds one.
#include "cli/verbs.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cli/completion.h"
#include "cli/help_text.h"
#include "cli/man_page.h"
#include "cli/option_values.h"

namespace motley {
namespace {

TEST(Verbs, NamesAreUniqueAndTexted) {
  std::set<std::string_view> names;
  for (const VerbSpec& verb : all_verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    EXPECT_FALSE(verb.summary.empty()) << verb.name;
    EXPECT_NE(verb.run, nullptr) << verb.name;
    EXPECT_FALSE(verb.examples.empty()) << verb.name;
    for (const Example& example : verb.examples) {
      EXPECT_NE(example.command.find("motley " + std::string(verb.name)), std::string_view::npos)
          << example.command;
    }
  }
}

TEST(Verbs, OptionsAreUniqueWithinAVerb) {
  for (const VerbSpec& verb : all_verbs()) {
    std::set<std::string_view> names = {"help"};
    std::set<char> letters = {'h'};
    for (const OptionSpec& option : verb.options) {
      EXPECT_TRUE(names.insert(option.name).second) << verb.name << " --" << option.name;
      if (option.letter != 0) {
        EXPECT_TRUE(letters.insert(option.letter).second) << verb.name << " -" << option.letter;
      }
    }
  }
}

// One variable, one meaning.
TEST(Verbs, AnEnvironmentNameHasOneType) {
  std::map<std::string, OptionSpec> seen;
  for (const VerbSpec& verb : all_verbs()) {
    for (const OptionSpec& option : verb.options) {
      const auto [found, added] = seen.emplace(environment_name(option), option);
      EXPECT_EQ(found->second.type, option.type) << verb.name << " --" << option.name;
      EXPECT_EQ(found->second.choices, option.choices) << verb.name << " --" << option.name;
    }
  }
}

TEST(Verbs, DefaultsAreValidAndStated) {
  for (const VerbSpec& verb : all_verbs()) {
    for (const OptionSpec& option : verb.options) {
      SCOPED_TRACE(std::string(verb.name) + " --" + std::string(option.name));
      EXPECT_FALSE(option.help.empty());
      EXPECT_EQ(option.help.back() == '.', false);
      EXPECT_EQ(option.choices.empty(), option.type != OptionType::kChoice);
      if (option.type != OptionType::kFlag && option.type != OptionType::kChoice) {
        EXPECT_FALSE(option.value.empty());
      }
      if (option.default_value.empty()) continue;
      OptionValues values;
      const Status status = values.set(option, {std::string(option.default_value)}, "default");
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
  }
}

TEST(Verbs, RequiredArgumentsComeFirst) {
  for (const VerbSpec& verb : all_verbs()) {
    bool optional = false;
    for (const ArgumentSpec& argument : verb.arguments) {
      EXPECT_FALSE(optional && argument.required) << verb.name << ' ' << argument.name;
      optional = optional || !argument.required;
    }
  }
}

// Everything in the tables reaches the reader, on every page.
TEST(Verbs, HelpManAndCompletionNameEveryOption) {
  const std::vector<VerbSpec> verbs = all_verbs();
  const std::string man = man_page(verbs, "1.2.3");
  const std::string bash = bash_completion(verbs);
  const std::string zsh = zsh_completion(verbs);
  const std::string fish = fish_completion(verbs);
  EXPECT_NE(man.find("motley 1.2.3"), std::string::npos);
  for (const VerbSpec& verb : verbs) {
    const std::string help = verb_help(verb);
    EXPECT_NE(overview_help(verbs).find(std::string(verb.summary)), std::string::npos);
    EXPECT_NE(bash.find("'" + std::string(verb.name) + "')"), std::string::npos) << verb.name;
    for (const OptionSpec& option : verb.options) {
      SCOPED_TRACE(std::string(verb.name) + " --" + std::string(option.name));
      const std::string flag = "--" + std::string(option.name);
      EXPECT_NE(help.find(flag), std::string::npos);
      EXPECT_NE(help.find(environment_name(option)), std::string::npos);
      EXPECT_NE(bash.find(flag), std::string::npos);
      EXPECT_NE(zsh.find(flag + "["), std::string::npos);
      EXPECT_NE(fish.find(" -l " + std::string(option.name)), std::string::npos);
      EXPECT_NE(man.find(environment_name(option)), std::string::npos);
    }
  }
}

TEST(Verbs, HelpFitsATerminal) {
  for (const VerbSpec& verb : all_verbs()) {
    const std::string help = verb_help(verb);
    size_t start = 0;
    while (start < help.size()) {
      const size_t end = std::min(help.find('\n', start), help.size());
      const std::string line = help.substr(start, end - start);
      EXPECT_LE(line.size(), 100U) << line;
      start = end + 1;
    }
  }
}

}  // namespace
}  // namespace motley
