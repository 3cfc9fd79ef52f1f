#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/environment.h"
#include "cli/program.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
  // A file over the limit (ulimit -f) is an error of the write, which cleans up after itself.
  signal(SIGXFSZ, SIG_IGN);
  const char* no_color = std::getenv("NO_COLOR");
  motley::ConsoleOptions options;
  options.no_color = no_color != nullptr && *no_color != '\0';
  motley::Console console(options);
  try {
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    return motley::run_program(words, motley::read_environment(environ), motley::all_verbs(),
                               console);
  } catch (const std::bad_alloc&) {
    console.error("out of memory");
  } catch (const std::exception& error) {
    console.error(std::string("internal error: ") + error.what());
  } catch (...) {
    console.error("internal error");
  }
  return motley::kExitFailure;
}
