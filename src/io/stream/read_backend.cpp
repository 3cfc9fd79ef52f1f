#include "io/stream/read_backend.h"

namespace motley {

Result<OpenedReadBackend> open_read_backend(std::span<const int> descriptors,
                                            const ReadBackendOptions& options) {
  OpenedReadBackend opened;
  if (options.kind != ReadBackendKind::kPread) {
    auto ring = open_uring_backend(descriptors, options.capacity);
    if (ring.is_ok()) {
      opened.backend = std::move(*ring);
      return opened;
    }
    if (options.kind == ReadBackendKind::kUring) return ring.status();
    opened.reason = ring.status().message();
  }
  MOTLEY_ASSIGN_OR_RETURN(opened.backend, open_pread_backend(descriptors, options.threads));
  return opened;
}

}  // namespace motley
