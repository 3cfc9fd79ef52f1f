// The experts that every token of a run chose: recorded to a file, read back, replayed.
//
// File (little endian): "MTLROUTE", u32 version 1, u32 layers, u32 experts, u32 experts per token,
// u32 length of the model's name, the name, u64 hash (base/hash.h) of everything before it. Then
// one record per token, all of one size: u16 role (0xD0DE decode, 0xF111 prefill), then for each
// layer of experts its experts per token ids of 16 bit, as the router ranked them. Only whole
// records count: a file that was cut short reads up to the last one. Ownership: values. Thread
// rule: one thread per writer. Fault points: io.open, io.read, io.write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "io/file.h"

namespace motley {

struct RouteShape {
  int layers = 0;  // those with experts
  int experts = 0;
  int top = 0;        // experts per token
  std::string model;  // printable, at most 512 bytes
  int64_t record_bytes() const { return 2 + int64_t{2} * layers * top; }
  int64_t ids_per_token() const { return int64_t{layers} * top; }
};

enum class RouteRole : uint8_t { kDecode, kPrefill };

struct RouteTrace {
  RouteShape shape;
  std::vector<RouteRole> roles;  // by token
  std::vector<uint16_t> ids;     // [token][layer][rank]
  int64_t cut_bytes = 0;         // of an unfinished record at the end

  int64_t tokens() const { return static_cast<int64_t>(roles.size()); }
  std::span<const uint16_t> of(int64_t token, int layer) const {
    const auto top = static_cast<size_t>(shape.top);
    const auto first =
        static_cast<size_t>(token) * static_cast<size_t>(shape.layers) + static_cast<size_t>(layer);
    return std::span(ids).subspan(first * top, top);
  }
};

// kInvalidArgument for a shape that no file may have.
Status check_route_shape(const RouteShape& shape);

class RouteTraceWriter {
 public:
  // Replaces a file of that name.
  static Result<RouteTraceWriter> create(FaultPoints& faults, const std::string& path,
                                         const RouteShape& shape);
  RouteTraceWriter(RouteTraceWriter&&) = default;
  RouteTraceWriter& operator=(RouteTraceWriter&&) = delete;
  ~RouteTraceWriter();  // flushes; an error is lost, so call flush()

  // The ids of one token, [layer][rank]. Written in blocks of whole records.
  // kInvalidArgument when the number of ids or an id does not fit the shape, or a layer has one
  // twice.
  Status append(RouteRole role, std::span<const uint16_t> ids);
  // Hands everything to the operating system.
  Status flush();
  int64_t tokens() const { return tokens_; }

 private:
  RouteTraceWriter() = default;
  FaultPoints* faults_ = nullptr;
  Descriptor descriptor_;
  std::string path_;
  RouteShape shape_;
  std::vector<std::byte> pending_;
  std::vector<int64_t> seen_;  // by expert, the last layer of all tokens that chose it
  int64_t marks_ = 0;
  int64_t tokens_ = 0;
};

// kCorrupt or kUnsupported with one line that says what is wrong. Ids are below `experts` and
// distinct within a layer.
Result<RouteTrace> parse_route_trace(std::span<const std::byte> bytes);
Result<RouteTrace> read_route_trace(FaultPoints& faults, const std::string& path);

}  // namespace motley
