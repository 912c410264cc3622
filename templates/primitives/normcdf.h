// needs: exp_product
// The standard normal distribution function: an odd polynomial about 1/2 for |x| < 0.8; for the
// lower tail exp(-x^2 / 2) r p((|x| - 7/2) r) with r = 1 / (|x| + 7/2), for the upper 1 minus that.
// At most 5.30 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float normcdf(float x) {
#ifdef __CUDACC__
  return ::normcdff(x);
#else
  const float y = std::fabs(x) < 40.0f ? std::fabs(x) : 40.0f;
  const float r = 1.0f / (y + 3.5f);
  const float t = (y - 3.5f) * r;  // not 1 - 7 r, which has seven times r's rounding
  float p = 0x1.8c17b8p-14f;
  p = std::fma(p, t, 0x1.a9e96ap-12f);
  p = std::fma(p, t, -0x1.f055b4p-12f);
  p = std::fma(p, t, -0x1.9d9c58p-9f);
  p = std::fma(p, t, 0x1.a8e85ep-8f);
  p = std::fma(p, t, 0x1.1d1072p-6f);
  p = std::fma(p, t, -0x1.db58aep-4f);
  p = std::fma(p, t, 0x1.42ff04p-2f);
  p = std::fma(p, t, -0x1.219152p-1f);
  p = std::fma(p, t, 0x1.7d241ap-1f);
  const float tail = exp_product(x, -0.5f * x) * (p * r);
  const float z = x * x;
  float q = 0x1.cc6a2ap-14f;
  q = std::fma(q, z, -0x1.381b66p-10f);
  q = std::fma(q, z, 0x1.46e776p-7f);
  q = std::fma(q, z, -0x1.1058b4p-4f);
  q = std::fma(q, z, 0x1.988454p-2f);
  const float middle = std::fma(x, q, 0.5f);
  const float outside = x > 0.0f ? 1.0f - tail : tail;
  return z < 0.64f ? middle : outside;
#endif
}

AUTOFN_FN double normcdf(double x) { return 0.5 * std::erfc(-0.70710678118654752 * x); }
