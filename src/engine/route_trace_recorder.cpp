#include "engine/route_trace_recorder.h"

#include <algorithm>
#include <variant>

namespace motley {

Result<RouteTraceRecorder> RouteTraceRecorder::create(FaultPoints& faults, const std::string& path,
                                                      const ModelSpec& spec) {
  RouteShape shape{.model = spec.family};
  std::vector<int> place;
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    place.push_back(moe != nullptr ? shape.layers++ : -1);
    if (moe == nullptr) continue;
    if (shape.layers > 1 && (shape.experts != static_cast<int>(moe->experts) ||
                             shape.top != static_cast<int>(moe->experts_per_token))) {
      return unsupported("routes are recorded of models whose layers all have as many experts");
    }
    shape.experts = static_cast<int>(moe->experts);
    shape.top = static_cast<int>(moe->experts_per_token);
  }
  if (shape.layers == 0) return unsupported("there are no routes to record: no layer has experts");
  MOTLEY_ASSIGN_OR_RETURN(RouteTraceWriter writer, RouteTraceWriter::create(faults, path, shape));
  return RouteTraceRecorder(std::move(writer), std::move(shape), std::move(place));
}

void RouteTraceRecorder::routing(int layer, const Batch& batch, const Routing& routing) {
  if (static_cast<size_t>(layer) >= place_.size()) return;  // a draft layer
  const int place = place_[static_cast<size_t>(layer)];
  for (const BatchSegment& segment : batch.segments) record(place, segment, routing);
}

void RouteTraceRecorder::record(int place, const BatchSegment& segment, const Routing& routing) {
  const auto top = static_cast<size_t>(shape_.top);
  const auto* ids = routing.experts.as<int32_t>();
  const RouteRole role =
      segment.rows.role == RowRole::kDecode ? RouteRole::kDecode : RouteRole::kPrefill;
  for (int32_t row = 0; row < segment.rows.rows; ++row) {
    const Token token{segment.state, segment.rows.first_position.value + row};
    std::vector<uint16_t>& chosen = started_[token];
    if (place == 0) chosen.clear();
    if (chosen.size() != static_cast<size_t>(place) * top) continue;  // its step had failed
    const int32_t* of_row = ids + static_cast<size_t>(segment.rows.first_row + row) * top;
    std::transform(of_row, of_row + top, std::back_inserter(chosen),
                   [](int32_t id) { return static_cast<uint16_t>(id); });
    if (place + 1 < shape_.layers) continue;
    const Status written = writer_.append(role, chosen);
    if (status_.is_ok()) status_ = written;
    started_.erase(token);
  }
}

Status RouteTraceRecorder::finish() {
  const Status flushed = writer_.flush();
  return status_.is_ok() ? flushed : status_;
}

}  // namespace motley
