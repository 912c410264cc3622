// asinh(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 1.01 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float asinh(float x) {
#ifdef __CUDACC__
  return ::asinhf(x);
#else
  return std::asinh(x);
#endif
}

AUTOFN_FN double asinh(double x) { return std::asinh(x); }
