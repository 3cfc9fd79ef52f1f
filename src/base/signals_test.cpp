#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace motley {
namespace {

TEST(Interrupt, TheFirstSetsAFlag) {
  InterruptHandler handler;
  EXPECT_FALSE(handler.interrupted());
  raise(SIGINT);
  EXPECT_TRUE(handler.interrupted());
  handler.clear();
  EXPECT_FALSE(handler.interrupted());
  raise(SIGINT);  // a first one again
  EXPECT_TRUE(handler.interrupted());
}

TEST(Interrupt, TerminationCountsWhereAskedFor) {
  struct sigaction before{};
  struct sigaction after{};
  sigaction(SIGTERM, nullptr, &before);
  {
    const InterruptHandler handler(InterruptHandler::Signals::kInterruptAndTerminate);
    raise(SIGTERM);
    EXPECT_TRUE(handler.interrupted());
  }
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(InterruptDeathTest, TheSecondEndsTheProgram) {
  EXPECT_EXIT(
      {
        const InterruptHandler handler;
        raise(SIGINT);
        raise(SIGINT);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Interrupt, WaitingCallsReturnInsteadOfStartingAgain) {
  const InterruptHandler handler;
  struct sigaction action{};
  sigaction(SIGINT, nullptr, &action);
  EXPECT_EQ(action.sa_flags & SA_RESTART, 0);
}

TEST(Interrupt, TheFormerHandlerComesBack) {
  struct sigaction before{};
  struct sigaction after{};
  sigaction(SIGINT, nullptr, &before);
  {
    const InterruptHandler handler;
  }
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(InterruptDeathTest, TwoHandlersAreABug) {
  const InterruptHandler handler;
  EXPECT_DEATH({ const InterruptHandler second; }, "one interrupt handler at a time");
}

}  // namespace
}  // namespace motley
