// Quantises a loaded model into a directory of its own, in the layout that the request names.
#pragma once

#include <string>

#include "base/context.h"
#include "io/convert/checkpoint_export.h"
#include "io/convert/format_request.h"

namespace motley {

// Reads the checkpoint at `input` (any readable format) and writes `options.directory`.
// The draft layer is kept, at 8 bits or more.
Status quantize_checkpoint(Context& context, const std::string& input, const FormatRequest& request,
                           const ExportOptions& options);

}  // namespace motley
