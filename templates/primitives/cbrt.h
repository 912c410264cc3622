// cbrt(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 1.94 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float cbrt(float x) {
#ifdef __CUDACC__
  return ::cbrtf(x);
#else
  return std::cbrt(x);
#endif
}

AUTOFN_FN double cbrt(double x) { return std::cbrt(x); }
