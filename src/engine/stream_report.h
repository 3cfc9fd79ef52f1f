// What streaming did during a stretch of a run, in words and as JSON.
//
// The figures of merit: how many of the experts wanted were in memory, how many bytes a token read
// from the drive and how fast, and what the time went to.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace motley {

struct StreamStretch {
  StreamStats stats;   // of the stretch
  int64_t tokens = 0;  // computed in it
  double seconds = 0;
};

// Measures from its making on. The engine outlives it.
class StreamMeter {
 public:
  explicit StreamMeter(const Engine& engine);
  StreamStretch stretch(int64_t tokens) const;

 private:
  const Engine& engine_;
  StreamStats start_;
  int64_t start_ns_;
};

// One line. Empty when nothing was streamed.
std::string stream_text(const Engine& engine, const StreamStretch& stretch);
// An object, or "null".
std::string stream_json(const Engine& engine, const StreamStretch& stretch);

}  // namespace motley
