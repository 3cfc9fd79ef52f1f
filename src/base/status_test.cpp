#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace motley {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("value is odd");
  return value / 2;
}

Result<int> quarter(int value) {
  MOTLEY_ASSIGN_OR_RETURN(const int once, half(value));
  MOTLEY_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status check_even(int value) {
  MOTLEY_RETURN_IF_ERROR(half(value).status());
  return Status::ok();
}

TEST(Status, PropagatesTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(check_even(2).is_ok());
  EXPECT_FALSE(check_even(3).is_ok());
}

TEST(Status, ContextNamesTheThing) {
  EXPECT_EQ(corrupt("header too long").with_context("model.safetensors").message(),
            "model.safetensors: header too long");
  EXPECT_TRUE(Status::ok().with_context("anything").is_ok());
}

TEST(Status, IoErrorsCarryErrno) {
  EXPECT_EQ(io_error("open x", ENOENT).message(), "open x: No such file or directory");
}

TEST(Result, MovesOnlyTypes) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  EXPECT_EQ(*std::move(result).value(), 3);
}

TEST(ResultDeathTest, ReadingAnErrorIsABug) {
  EXPECT_DEATH((void)half(1).value(), "value is odd");
}

}  // namespace
}  // namespace motley
