#include "ops_device/harness.h"

namespace motley::ops_device {

Result<std::unique_ptr<Backend>> make_cuda_backend(Context& /*context*/) {
  return unsupported("this build has no CUDA backend; configure with the preset cuda");
}

}  // namespace motley::ops_device
