// Records which experts every token chose, to a file for the replayer
// (experts/cache/route_trace.h).
//
// Works for tokens that pass the layers together (decode, chunks) and for sweeps, which take all
// tokens through one layer at a time: a token is written when its last layer has chosen. A token
// whose step failed is forgotten when it comes again. Draft layers are not recorded.
// Ownership: owns the writer. Thread rule: that of StepObserver.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experts/cache/route_trace.h"
#include "model/observer.h"
#include "spec/model_spec.h"

namespace motley {

class RouteTraceRecorder final : public StepObserver {
 public:
  // kUnsupported for a model whose layers do not all choose alike, or that has no experts; errors
  // of the file name it.
  static Result<RouteTraceRecorder> create(FaultPoints& faults, const std::string& path,
                                           const ModelSpec& spec);

  bool wants_routing() const override { return true; }
  void routing(int layer, const Batch& batch, const Routing& routing) override;

  // Everything is in the file; the first error since the start.
  Status finish();
  int64_t tokens() const { return writer_.tokens(); }

 private:
  // Tokens that some layers have chosen for, [layer][rank].
  using Token = std::pair<const SequenceState*, int64_t>;

  RouteTraceRecorder(RouteTraceWriter writer, RouteShape shape, std::vector<int> place)
      : writer_(std::move(writer)), shape_(std::move(shape)), place_(std::move(place)) {}

  void record(int place, const BatchSegment& segment, const Routing& routing);

  RouteTraceWriter writer_;
  RouteShape shape_;
  std::vector<int> place_;  // layer -> its place among those with experts, -1: has none
  std::map<Token, std::vector<uint16_t>> started_;
  Status status_;
};

}  // namespace motley
