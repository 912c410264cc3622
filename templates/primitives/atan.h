// atan(x): an odd polynomial of degree 19 of |x|, or pi / 2 less that of 1 / |x| above 1. At most
// 1.30 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float atan(float x) {
#ifdef __CUDACC__
  return ::atanf(x);
#else
  const float y = std::fabs(x);
  const float i = -1.0f / y;
  const float t = y > 1.0f ? i : y;
  const float z = t * t;
  float p = -0x1.d631p-10f;
  p = std::fma(p, z, 0x1.65a6fcp-7f);
  p = std::fma(p, z, -0x1.fed1f2p-6f);
  p = std::fma(p, z, 0x1.daca2cp-5f);
  p = std::fma(p, z, -0x1.5834a4p-4f);
  p = std::fma(p, z, 0x1.c09a02p-4f);
  p = std::fma(p, z, -0x1.2421b6p-3f);
  p = std::fma(p, z, 0x1.999202p-3f);
  p = std::fma(p, z, -0x1.55554p-2f);
  // The first sum is exact where the last has the smallest unit.
  const float q = (0x1.921fb6p+0f + t) + std::fma(p * z, t, -0x1.777a5cp-25f);
  p = y > 1.0f ? q : std::fma(p * z, t, t);
  return from_bits(bits(p) | (bits(x) & 0x80000000u));
#endif
}

AUTOFN_FN double atan(double x) { return std::atan(x); }
