// A trace of routes: whatever is accepted can be replayed and has the size that it says.
#include <cstdlib>

#include "experts/cache/route_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = motley::parse_route_trace(std::as_bytes(std::span(data, size)));
  if (!trace.is_ok()) {
    if (trace.status().message().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const motley::RouteShape& shape = trace->shape;
  if (!motley::check_route_shape(shape).is_ok()) std::abort();
  const auto ids = static_cast<int64_t>(trace->ids.size());
  if (ids != trace->tokens() * shape.ids_per_token()) std::abort();
  if (trace->cut_bytes < 0 || trace->cut_bytes >= shape.record_bytes()) std::abort();
  for (const uint16_t id : trace->ids) {
    if (id >= shape.experts) std::abort();
  }
  return 0;
}
