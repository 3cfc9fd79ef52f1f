#include "cli/help_text.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(HelpText, WrapsAtWordsAndKeepsNewlines) {
  EXPECT_EQ(wrap_text("one two three", 2, 9), "  one two\n  three\n");
  EXPECT_EQ(wrap_text("one\n\ntwo", 0, 80), "one\n\ntwo\n");
  EXPECT_EQ(wrap_text("unbreakablelongword x", 2, 10), "  unbreakablelongword\n  x\n");
  EXPECT_EQ(wrap_text("", 4), "");
}

TEST(HelpText, FlagTextShowsLettersValuesAndChoices) {
  EXPECT_EQ(flag_text({.name = "json"}), "--json");
  EXPECT_EQ(
      flag_text({.name = "max-tokens", .letter = 'n', .type = OptionType::kInteger, .value = "N"}),
      "-n, --max-tokens N");
  EXPECT_EQ(flag_text({.name = "think", .type = OptionType::kChoice, .choices = {"on", "off"}}),
            "--think on|off");
}

TEST(HelpText, APageHasAllItsParts) {
  const VerbSpec verb = {
      .name = "copy",
      .summary = "copy things",
      .description = "First.\n\nSecond.",
      .arguments = {{.name = "IN", .help = "what"},
                    {.name = "OUT", .help = "where", .required = false, .repeatable = true}},
      .options = {{.name = "bits",
                   .letter = 'b',
                   .type = OptionType::kInteger,
                   .value = "B",
                   .help = "width of a number",
                   .default_value = "4"},
                  {.name = "tag",
                   .type = OptionType::kText,
                   .value = "T",
                   .help = "a label",
                   .default_note = "none",
                   .repeatable = true}},
      .examples = {{"motley copy a b", "copies a to b"}}};
  EXPECT_EQ(verb_help(verb),
            "motley copy: copy things\n\n"
            "usage: motley copy [options] IN [OUT...]\n\n"
            "First.\n\nSecond.\n\n"
            "arguments:\n  IN\n      what\n  OUT\n      where\n\n"
            "options:\n"
            "  -b, --bits B\n      width of a number (default 4)\n      environment: MOTLEY_BITS\n"
            "  --tag T\n      a label (default: none); may be repeated\n"
            "      environment: MOTLEY_TAG\n"
            "  -h, --help\n      this page\n\n"
            "examples:\n  motley copy a b\n      copies a to b\n");
}

}  // namespace
}  // namespace motley
