// Must be flagged by isa_symbols: an inline function that the compiler cannot inline.
inline int shared_helper(int x) {
  return x <= 1 ? 1 : x * shared_helper(x - 1);
}

int (*leaking_kernel())(int);
int (*leaking_kernel())(int) {
  return &shared_helper;
}
