#include "io/sigbus_guard.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

namespace motley {
namespace {

struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // set last, cleared first: a slot with end 0 matches nothing
  std::array<char, 240> name{};
};

std::array<Slot, SigbusGuard::kMaxMappings> g_slots;
std::once_flag g_installed;
struct sigaction g_previous;

// Only async-signal-safe calls below.
void write_text(const char* text, size_t length) {
  // Nothing can be done about a failed write on the way out.
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text, length);
}

void handle_sigbus(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : g_slots) {
    if (address < slot.end.load(std::memory_order_acquire) && address >= slot.begin.load()) {
      constexpr std::string_view kBefore = "motley: ";
      constexpr std::string_view kAfter =
          ": the file became shorter or unreadable while in use; restore it and start again\n";
      write_text(kBefore.data(), kBefore.size());
      write_text(slot.name.data(), strnlen(slot.name.data(), slot.name.size()));
      write_text(kAfter.data(), kAfter.size());
      _exit(1);
    }
  }
  // Not ours: the fault repeats on return and meets the previous handler.
  sigaction(SIGBUS, &g_previous, nullptr);
}

void install() {
  struct sigaction action{};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_previous);
}

}  // namespace

Result<SigbusGuard> SigbusGuard::watch(std::span<const std::byte> mapping, std::string_view file) {
  std::call_once(g_installed, install);
  for (int i = 0; i < kMaxMappings; ++i) {
    Slot& slot = g_slots[static_cast<size_t>(i)];
    if (slot.taken.exchange(true)) continue;
    slot.name.fill('\0');
    // The end of a long path says more than its beginning.
    const size_t room = slot.name.size() - 1;
    const std::string_view tail = file.substr(file.size() - std::min(file.size(), room));
    std::copy(tail.begin(), tail.end(), slot.name.begin());
    const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
    slot.begin.store(begin);
    slot.end.store(begin + mapping.size(), std::memory_order_release);
    SigbusGuard guard;
    guard.slot_ = i;
    return guard;
  }
  return resource_exhausted("more than " + std::to_string(kMaxMappings) + " mapped files");
}

SigbusGuard::SigbusGuard(SigbusGuard&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

SigbusGuard& SigbusGuard::operator=(SigbusGuard&& other) noexcept {
  if (this != &other) {
    release();
    slot_ = std::exchange(other.slot_, -1);
  }
  return *this;
}

void SigbusGuard::release() {
  if (slot_ < 0) return;
  Slot& slot = g_slots[static_cast<size_t>(slot_)];
  slot.end.store(0);
  slot.begin.store(0);
  slot.taken.store(false);
  slot_ = -1;
}

}  // namespace motley
