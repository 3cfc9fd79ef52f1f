// What a running motley depends on, passed by reference from main() downwards.
//
// There is no global mutable state: two contexts are two independent engines. Members are in
// dependency order; later ones may use earlier ones.
// Only names are declared here: device code includes this, and nvcc cannot compile the log's
// formats. Thread rule: the references may be shared; each member states its own rule.
#pragma once

namespace motley {

class Clock;
class FaultPoints;
class Logger;
class ThreadPool;

struct Context {
  Clock& clock;
  Logger& log;
  FaultPoints& faults;
  ThreadPool& threads;
};

}  // namespace motley
