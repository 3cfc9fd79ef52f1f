// Every verb of the program, in the order in which help lists them.
//
// To add one (quantize, synth, ...): write verb_NAME.cpp with a function `VerbSpec NAME_verb()`, as
// verb_tokenize.cpp shows, and add one line here: VERB(NAME). Help, manual page, completion and
// environment names follow from the table that the function returns.
#pragma once

#include <vector>

#include "cli/option_spec.h"

#define MOTLEY_VERBS(VERB) \
  VERB(run)                \
  VERB(inspect)            \
  VERB(plan)               \
  VERB(doctor)             \
  VERB(verify)             \
  VERB(tokenize)           \
  VERB(template)           \
  VERB(bench_model)        \
  VERB(bench_cache)        \
  VERB(bench_soak)         \
  VERB(quantize)           \
  VERB(pack)               \
  VERB(synth)              \
  VERB(completion)         \
  VERB(man)

namespace motley {

#define MOTLEY_DECLARE_VERB(name) VerbSpec name##_verb();
MOTLEY_VERBS(MOTLEY_DECLARE_VERB)
#undef MOTLEY_DECLARE_VERB

inline std::vector<VerbSpec> all_verbs() {
  std::vector<VerbSpec> verbs;
#define MOTLEY_ADD_VERB(name) verbs.push_back(name##_verb());
  MOTLEY_VERBS(MOTLEY_ADD_VERB)
#undef MOTLEY_ADD_VERB
  return verbs;
}

}  // namespace motley
