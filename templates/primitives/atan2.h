// atan2(y, x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 3.42 with glibc 2.36 over 2 * 10^8 pairs (benchmarks/primitives.md).
AUTOFN_FN float atan2(float y, float x) {
#ifdef __CUDACC__
  return ::atan2f(y, x);
#else
  return std::atan2(y, x);
#endif
}

AUTOFN_FN double atan2(double y, double x) { return std::atan2(y, x); }
