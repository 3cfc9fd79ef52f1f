#include "cli/man_page.h"

#include <fmt/format.h>

#include "cli/help_text.h"

namespace motley {
namespace {

// Text that roff takes literally: backslashes, hyphens, and a dot or quote that begins a line.
std::string roff(std::string_view text) {
  std::string escaped;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    line_start = c == '\n';
  }
  return escaped;
}

std::string paragraphs(std::string_view text) {
  std::string body;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    body += ".PP\n" + roff(text.substr(at, end - at)) + "\n";
    at = end + 2;
  }
  return body;
}

std::string option_entry(const OptionSpec& option) {
  std::string entry = fmt::format(".TP\n.B {}\n{}", roff(flag_text(option)), roff(option.help));
  const std::string fallback = default_text(option);
  if (!fallback.empty()) entry += roff(fmt::format(" ({})", fallback));
  if (option.repeatable) entry += "; may be repeated";
  return entry + roff(fmt::format(".\nEnvironment: {}.\n", environment_name(option)));
}

std::string verb_section(const VerbSpec& verb) {
  std::string section = fmt::format(".SS {}\n.PP\n.B {}\n.br\n{}.\n", roff(verb.name),
                                    roff(usage_line(verb)), roff(verb.summary));
  section += paragraphs(verb.description);
  for (const ArgumentSpec& argument : verb.arguments) {
    section += fmt::format(".TP\n.I {}\n{}.\n", roff(argument.name), roff(argument.help));
  }
  for (const OptionSpec& option : verb.options) section += option_entry(option);
  for (const Example& example : verb.examples) {
    section += fmt::format(".TP\n.B {}\n{}.\n", roff(example.command), roff(example.meaning));
  }
  return section;
}

}  // namespace

std::string man_page(std::span<const VerbSpec> verbs, std::string_view version) {
  std::string page = fmt::format(".TH MOTLEY 1 \"\" \"motley {}\" \"User Commands\"\n", version);
  page +=
      ".SH NAME\nmotley \\- inference engine for mixture\\-of\\-experts models\n"
      ".SH SYNOPSIS\n.B motley\n.I VERB\n[options] [arguments]\n"
      ".SH DESCRIPTION\n"
      "motley runs mixture\\-of\\-experts language models from the checkpoints that people have\n"
      "already: Hugging Face directories of safetensors files, also in MLX layout.\n"
      "Generated text and results go to standard output, everything else to standard error.\n"
      ".SH VERBS\n";
  for (const VerbSpec& verb : verbs) page += verb_section(verb);
  page +=
      ".SH ENVIRONMENT\n"
      "Each option of a verb can also be set by the variable that its entry names; a flag on the\n"
      "command line wins. A variable whose name begins with MOTLEY_ and that is no option of any\n"
      "verb is an error. NO_COLOR, when set and not empty, turns colours off.\n"
      ".SH FILES\n.TP\n.I $XDG_STATE_HOME/motley/history\n"
      "Lines typed in the chat, readable by their owner only (default\n"
      "~/.local/state/motley/history).\n"
      ".SH EXIT STATUS\n"
      "0: done. 1: failed; standard error holds one line with the reason. 2: wrong usage.\n"
      "130: interrupted.\n";
  return page;
}

}  // namespace motley
