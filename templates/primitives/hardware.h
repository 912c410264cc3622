// A GPU's own approximations, for elements of 16-bit types: to 2^-22, log2 between 1/2 and 2 to an
// absolute 2^-22; what is subnormal counts as 0. No primitives themselves.
#ifdef __CUDACC__
AUTOFN_FN float hardware_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

AUTOFN_FN float hardware_log2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::log2(x);
#endif
}

AUTOFN_FN float hardware_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

AUTOFN_FN double hardware_reciprocal(double x) {
#ifdef __CUDA_ARCH__
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return 1.0 / x;
#endif
}
#endif
