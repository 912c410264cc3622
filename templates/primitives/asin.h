// asin(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 3.12 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float asin(float x) {
#ifdef __CUDACC__
  return ::asinf(x);
#else
  return std::asin(x);
#endif
}

AUTOFN_FN double asin(double x) { return std::asin(x); }
