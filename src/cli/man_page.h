// The manual page motley(1), made from the tables of the verbs.
// Thread rule: pure function.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/option_spec.h"

namespace motley {

// In the man macro package of roff. `version` goes into the footer.
std::string man_page(std::span<const VerbSpec> verbs, std::string_view version);

}  // namespace motley
