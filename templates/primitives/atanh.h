// atanh(x): the C library's, through libmvec in loops (prelude.h): at most 4 ULP by its manual,
// 1.91 with glibc 2.36 (benchmarks/primitives.md).
AUTOFN_FN float atanh(float x) {
#ifdef __CUDACC__
  return ::atanhf(x);
#else
  return std::atanh(x);
#endif
}

AUTOFN_FN double atanh(double x) { return std::atanh(x); }
