// needs: exp
// The standard normal distribution function: an odd polynomial about 1/2 for |x| < 1. For the lower
// tail exp(-x^2 / 2) g(v), v = (y - 5) / (y + 5), y = |x|, at most 15, where the exponential is 0;
// with g multiplied by exp(r) - 1 and added, two roundings less. For the upper tail 1 minus that.
// At most 4.17 ULP, near -12.6, 3.1 from -11 on, over every float32 (benchmarks/primitives.md).
AUTOFN_FN float normcdf(float x) {
#ifdef __CUDACC__
  return ::normcdff(x);
#else
  const std::int32_t magnitude = bits(x) & INT32_MAX;
  const float y = from_bits(magnitude < 0x41700000 ? magnitude : 0x41700000);
  const float v = (y - 5.0f) / (y + 5.0f);
  float g = 0x1.903deap-13f;
  g = std::fma(g, v, 0x1.9e0a18p-13f);
  g = std::fma(g, v, -0x1.3bf72cp-9f);
  g = std::fma(g, v, 0x1.26b28ep-7f);
  g = std::fma(g, v, -0x1.7f83a6p-6f);
  g = std::fma(g, v, 0x1.88077ep-5f);
  g = std::fma(g, v, -0x1.4b4d44p-4f);
  g = std::fma(g, v, 0x1.db6b08p-4f);
  g = std::fma(g, v, -0x1.25cd14p-3f);
  g = std::fma(g, v, 0x1.3b0fbcp-4f);
  // Reduced as in exp_product(x, -x / 2), so that a density beside it shares all of this.
  const float h = -0.5f * x;
  const float e = x * h;
  const float t = std::fma(e, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(x, h, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  const float scaled_tail = scaled(std::fma(g, exp_quotient(r) * r, g), t);
  const float tail = e < -104.0f ? 0.0f : scaled_tail;
  const float z = x * x;
  float q = 0x1.8b9882p-14f;
  q = std::fma(q, z, -0x1.32951cp-10f);
  q = std::fma(q, z, 0x1.469bcap-7f);
  q = std::fma(q, z, -0x1.105768p-4f);
  q = std::fma(q, z, 0x1.988452p-2f);
  const float middle = std::fma(x, q, 0.5f);
  const float outside = x > 0.0f ? 1.0f - tail : tail;
  return z < 1.0f ? middle : outside;
#endif
}

// erfc(z) / 2 at z = -x / sqrt(2), and its slope times what z was rounded by: erfc's relative error
// is 2 z^2 times that of z.
AUTOFN_FN double normcdf(double x) {
#ifdef __CUDACC__
  return ::normcdf(x);
#else
  const double c = 0x1.6a09e667f3bcdp-1, rest = -0x1.bdd3413b26456p-55;  // of sqrt(1/2)
  const double z = -c * x;
  const double rounded = std::fma(-c, x, -z) - rest * x;
  const double d = std::fabs(x) < 40.0 ? rounded : 0.0;
  return 0.5 * std::fma(-0x1.20dd750429b6dp+0 * d, std::exp(-z * z), std::erfc(z));
#endif
}
