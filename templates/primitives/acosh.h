// acosh(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 1.16 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float acosh(float x) {
#ifdef __CUDACC__
  return ::acoshf(x);
#else
  return std::acosh(x);
#endif
}

AUTOFN_FN double acosh(double x) { return std::acosh(x); }
