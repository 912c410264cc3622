// tan(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 3.90 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float tan(float x) {
#ifdef __CUDACC__
  return ::tanf(x);
#else
  return std::tan(x);
#endif
}

AUTOFN_FN double tan(double x) { return std::tan(x); }
