// acos(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 2.10 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float acos(float x) {
#ifdef __CUDACC__
  return ::acosf(x);
#else
  return std::acos(x);
#endif
}

AUTOFN_FN double acos(double x) { return std::acos(x); }
