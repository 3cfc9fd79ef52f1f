// isa_symbols NM OBJECT...: no x_avx2, x_avx512, x_amx or x_neon object may define a weak symbol.
//
// A weak symbol is a copy of an inline function or template that other objects may define too; the
// linker keeps one of them for the whole program. If it keeps the copy from a kernel file, generic
// code runs instructions that the machine may lack. Kernel files therefore define only the
// functions of their table; helpers are in an unnamed namespace or are always inlined.
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <regex>
#include <sstream>
#include <string>

namespace {

struct CloseProcess {
  void operator()(FILE* file) const { pclose(file); }
};

// Lines of `nm --defined-only OBJECT`; empty when nm fails.
std::string symbols_of(const std::string& nm, const std::string& object) {
  const std::string command = "'" + nm + "' --demangle --defined-only '" + object + "'";
  const std::unique_ptr<FILE, CloseProcess> pipe(popen(command.c_str(), "r"));
  if (!pipe) return "";
  std::string text;
  std::array<char, 4096> buffer;
  size_t size = 0;
  while ((size = fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0) {
    text.append(buffer.data(), size);
  }
  return text;
}

bool is_kernel_object(const std::string& path) {
  static const std::regex pattern(R"(_(avx2|avx512|amx|neon)\.cpp\.o(bj)?$)");
  return std::regex_search(path, pattern);
}

// Weak symbols that are code. Weak data (V) are constants, which no instruction set can spoil.
int count_leaks(const std::string& object, const std::string& symbols) {
  static const std::regex weak(R"(^[0-9a-f]+ ([Wui]) (.*)$)");
  int leaks = 0;
  std::istringstream lines(symbols);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, weak)) continue;
    std::cout << object << ": weak symbol " << match[2] << '\n';
    ++leaks;
  }
  return leaks;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: isa_symbols NM OBJECT...\n";
    return 2;
  }
  int checked = 0;
  int leaks = 0;
  for (int i = 2; i < argc; ++i) {
    const std::string object = argv[i];
    if (!is_kernel_object(object)) continue;
    const std::string symbols = symbols_of(argv[1], object);
    if (symbols.empty()) {
      std::cout << object << ": no symbols read\n";
      return 2;
    }
    ++checked;
    leaks += count_leaks(object, symbols);
  }
  std::cout << checked << " kernel objects checked, " << leaks << " leaks\n";
  return leaks == 0 ? 0 : 1;
}
