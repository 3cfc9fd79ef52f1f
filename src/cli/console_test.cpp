#include "cli/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace motley {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_end(int index) {
    if (ends[index] >= 0) ::close(ends[index]);
    ends[index] = -1;
  }
  std::string drain() {
    close_end(1);
    return read_stream(ends[0], 1 << 20, "pipe").value();
  }
  int ends[2] = {-1, -1};
};

TEST(Console, WritesToItsStreamsWithoutColourInAPipe) {
  Pipe out;
  Pipe err;
  Console console({.in = 0, .out = out.ends[1], .err = err.ends[1]});
  EXPECT_FALSE(console.out_is_terminal());
  console.out("text");
  console.error("it broke");
  EXPECT_EQ(console.styled(Console::Style::kPrompt, "> ", true), "> ");
  EXPECT_EQ(out.drain(), "text");
  EXPECT_EQ(err.drain(), "motley: it broke\n");
  EXPECT_TRUE(console.out_status().is_ok());
}

TEST(Console, KeepsTheFirstWriteError) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  Console console({.in = 0, .out = full, .err = 2});
  console.out("x");
  console.out("y");
  EXPECT_EQ(console.out_status().message(), "write to standard output: No space left on device");
  ::close(full);
}

TEST(Console, ControlCharactersOfAModelAreMadeVisible) {
  EXPECT_EQ(text_for_terminal("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(text_for_terminal("\x1b[2Jx"), "\\x1b[2Jx");
  EXPECT_EQ(text_for_terminal("\r\x07\x7f"), "\\x0d\\x07\\x7f");
  EXPECT_EQ(text_for_terminal("\xC2\x9B!"), "\\x9b!");  // CSI in one character
  EXPECT_EQ(text_for_terminal("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
}

TEST(Console, ReadsABoundedStreamExactly) {
  Pipe pipe;
  const std::string bytes("a\0\r\n \xFF", 6);
  ASSERT_EQ(::write(pipe.ends[1], bytes.data(), bytes.size()), 6);
  EXPECT_EQ(pipe.drain(), bytes);
  Pipe longer;
  ASSERT_EQ(::write(longer.ends[1], "12345", 5), 5);
  longer.close_end(1);
  EXPECT_EQ(read_stream(longer.ends[0], 4, "input").status().message(),
            "input is longer than 4 bytes, the most that is read");
}

TEST(Console, AMissingFileIsNamed) {
  EXPECT_EQ(read_input_file("/no/such/file", 10).status().message(),
            "open /no/such/file: No such file or directory");
  EXPECT_EQ(read_input_file("/", 10).status().message(), "read /: Is a directory");
}

}  // namespace
}  // namespace motley
