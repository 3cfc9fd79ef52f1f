// Ctrl-C, and where asked for SIGTERM: the first asks the running work to stop, the second ends the
// program.
//
// The handler only sets a flag, which loops poll between steps; system calls that wait are woken
// with EINTR. Until clear() is called a second Ctrl-C ends the process as if it had no handler
// (status 130 in a shell). The flag is the one piece of state that is not passed by reference: a
// signal handler has no arguments.
// Thread rule: construct and destroy on the main thread, one at a time; the rest from any thread.
#pragma once

namespace motley {

class InterruptHandler {
 public:
  enum class Signals { kInterrupt, kInterruptAndTerminate };

  explicit InterruptHandler(Signals signals = Signals::kInterrupt);  // takes the signals over
  ~InterruptHandler();  // puts the former handlers back
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

  // A Ctrl-C has arrived since the last clear().
  bool interrupted() const;
  // The interruption has been dealt with: the next Ctrl-C is a first one again.
  void clear();

 private:
  const Signals signals_;
};

}  // namespace motley
