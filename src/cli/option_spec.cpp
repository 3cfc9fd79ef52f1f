#include "cli/option_spec.h"

namespace motley {

std::string environment_name(const OptionSpec& option) {
  if (!option.environment.empty()) return std::string(option.environment);
  std::string name = "MOTLEY_";
  for (const char c : option.name) {
    name += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return name;
}

std::string flag_text(const OptionSpec& option) {
  std::string text;
  if (option.letter != 0) text.append("-").append(1, option.letter).append(", ");
  text.append("--").append(option.name);
  if (option.type == OptionType::kChoice) {
    text += ' ';
    for (size_t i = 0; i < option.choices.size(); ++i) {
      text.append(i == 0 ? "" : "|").append(option.choices[i]);
    }
  } else if (option.type != OptionType::kFlag) {
    text.append(" ").append(option.value);
  }
  return text;
}

}  // namespace motley
