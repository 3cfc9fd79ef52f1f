// What streaming did during a stretch of a run, in words and as JSON.
//
// The figures of merit: how many of the experts wanted were in memory, how many bytes a token read
// from the drive and how fast, and what the time went to.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "io/stream/drive_probe.h"

namespace motley {

struct StreamStretch {
  StreamStats stats;   // of the stretch
  int64_t tokens = 0;  // computed in it
  double seconds = 0;
  double probed_bytes_per_s = 0;  // what a probe of the drive got at best; 0: none is known
};

// Measures from its making on. The engine outlives it. A probe of the drive that was kept earlier
// (motley plan, motley doctor) is looked up in `drive_cache`; none is made.
class StreamMeter {
 public:
  explicit StreamMeter(const Engine& engine, std::string drive_cache = default_drive_cache_path());
  StreamStretch stretch(int64_t tokens) const;

 private:
  const Engine& engine_;
  std::string drive_cache_;
  StreamStats start_;
  int64_t start_ns_;
};

// One line. Empty when nothing was streamed.
std::string stream_text(const Engine& engine, const StreamStretch& stretch);
// An object, or "null".
std::string stream_json(const Engine& engine, const StreamStretch& stretch);

}  // namespace motley
