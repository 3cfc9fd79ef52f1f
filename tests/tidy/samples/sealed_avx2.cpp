// Must pass isa_symbols: its helper is local to the file.
namespace {
int local_helper(int x) {
  return x <= 1 ? 1 : x * local_helper(x - 1);
}
}  // namespace

int (*sealed_kernel())(int);
int (*sealed_kernel())(int) {
  return &local_helper;
}
