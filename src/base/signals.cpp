#include "base/signals.h"

#include <signal.h>

#include <atomic>

#include "base/check.h"

namespace motley {
namespace {

// Lock-free atomics are all that a signal handler may touch.
std::atomic<int> interrupt_count{0};
std::atomic<bool> handler_exists{false};
static_assert(std::atomic<int>::is_always_lock_free);

// Written by the constructor only.
struct sigaction former_interrupt;
struct sigaction former_terminate;

extern "C" void on_interrupt(int signal_number) {
  if (interrupt_count.fetch_add(1) == 0) return;
  signal(signal_number, SIG_DFL);
  raise(signal_number);  // delivered as soon as this handler returns
}

}  // namespace

InterruptHandler::InterruptHandler(Signals signals) : signals_(signals) {
  MOTLEY_CHECK(!handler_exists.exchange(true), "one interrupt handler at a time");
  interrupt_count.store(0);
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a waiting read must return
  sigaction(SIGINT, &action, &former_interrupt);
  if (signals_ == Signals::kInterruptAndTerminate) sigaction(SIGTERM, &action, &former_terminate);
}

InterruptHandler::~InterruptHandler() {
  sigaction(SIGINT, &former_interrupt, nullptr);
  if (signals_ == Signals::kInterruptAndTerminate) sigaction(SIGTERM, &former_terminate, nullptr);
  handler_exists.store(false);
}

bool InterruptHandler::interrupted() const {
  return interrupt_count.load(std::memory_order_relaxed) > 0;
}

void InterruptHandler::clear() {
  interrupt_count.store(0);
}

}  // namespace motley
