// The result of one generation as JSON.
// Thread rule: pure function.
#pragma once

#include <string>

#include "cli/generation_session.h"
#include "cli/run_options.h"

namespace motley {

// What drafts did, in lines.
std::string draft_lines(const GenerationOutcome& outcome);

std::string run_json(const RunModel& model, const SessionOptions& options,
                     const GenerationOutcome& outcome);

}  // namespace motley
