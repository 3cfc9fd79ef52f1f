#include "base/cache_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

namespace motley {
namespace {

// Sets a variable for a test, or takes it away.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* now = std::getenv(name)) before_ = now;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(CacheFolder, FollowsTheEnvironment) {
  const Variable home("HOME", "/home/a");
  {
    const Variable xdg("XDG_CACHE_HOME", "/cache");
    EXPECT_EQ(cache_file_path("x.json"), "/cache/motley/x.json");
  }
  const Variable relative("XDG_CACHE_HOME", "cache");
  EXPECT_EQ(cache_file_path("x.json"), "/home/a/.cache/motley/x.json");
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(cache_file_path("x.json"), "");
}

}  // namespace
}  // namespace motley
