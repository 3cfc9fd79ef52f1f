// A GGUF model opened and understood (loader.h has the same for every kind of checkpoint).
#pragma once

#include <string>

#include "base/context.h"
#include "base/status.h"
#include "io/loader.h"

namespace motley {

// `path` names GGUF files (io/gguf_files.h).
Result<OpenedModel> open_gguf_model(Context& context, const std::string& path);

}  // namespace motley
