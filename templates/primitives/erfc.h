// erfc(x): w exp(-y^2) p(1 - 3 w), y = |x|, w = 1 / (y + 3/2), p of degree 11; the roundings of
// y^2, of w and of the product are carried into the last sum. At most 2.10 ULP
// over every float32 (benchmarks/primitives.md).
AUTOFN_FN float erfc(float x) {
#ifdef __CUDACC__
  return ::erfcf(x);
#else
  const float y = std::fabs(x);
  const float d = y + 1.5f;
  const float w = 1.0f / d;
  // w's relative error, and what it does to the product of w and p.
  float e = std::fma(-w, d, 1.0f) - w * (y - (d - 1.5f));
  e = std::fma(e, w, e);
  const float v = std::fma(w, -3.0f, 1.0f);
  // Even and odd powers apart: one chain would be too long to overlap.
  const float vv = v * v;
  float q = -0x1.065ed2p-14f;
  q = std::fma(q, vv, -0x1.650f0cp-14f);
  q = std::fma(q, vv, 0x1.d371d6p-10f);
  q = std::fma(q, vv, -0x1.3615c0p-7f);
  q = std::fma(q, vv, 0x1.8751bap-5f);
  q = std::fma(q, vv, -0x1.0404eap-1f);
  float s = -0x1.c7ca00p-13f;
  s = std::fma(s, vv, 0x1.bdcc38p-11f);
  s = std::fma(s, vv, -0x1.a2b02ep-11f);
  s = std::fma(s, vv, -0x1.0a20e6p-7f);
  s = std::fma(s, vv, 0x1.35bf4ep-4f);
  q = std::fma(s, v, q);
  const float c = std::fma(q, v, 0x1.edf488p-1f);
  const float a = w * c;
  float b = std::fma(w, c, -a);
  b = std::fma(w, std::fma(q, v, 0x1.edf488p-1f - c), b);
  b = std::fma(a, e, b);
  // exp(-y^2): 1.5 * 2^23 + 254, as in exp.
  const float z = y * y;
  const float t = std::fma(z, -0x1.715476p+0f, 0x1.8001fcp+23f);
  const float n = t - 0x1.8001fcp+23f;
  float r = std::fma(y, -y, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6bedeap-10f;
  p = std::fma(p, r, 0x1.122872p-7f);
  p = std::fma(p, r, 0x1.5556c2p-5f);
  p = std::fma(p, r, 0x1.5554bp-3f);
  p = std::fma(p, r, 0x1.fffffep-2f);
  p = std::fma(p, r * r, r);
  p = std::fma(a, p, std::fma(b, p, b)) + a;
  const std::uint32_t u = bits(t);
  const std::uint32_t f = (u << 22) & 0xff800000u;
  const std::uint32_t g = (u << 23) - f;
  p = p * from_bits(f) * from_bits(g);
  p = y > 10.5f ? 0.0f : p;
  return bits(x) >= 0x80000000u ? 2.0f - p : p;
#endif
}

AUTOFN_FN double erfc(double x) { return std::erfc(x); }

// erfc(x + rest), what x lost in rounding: the slope to 5 % where it weighs more than the value.
template <typename T> AUTOFN_FN T erfc(T x, T rest) {
  const T c = autofn::erfc(x);
  const bool weighs = (x > T(0)) & (x < T(30));
  return weighs ? std::fma(c, -rest * (x + std::sqrt(std::fma(x, x, T(1.5)))), c) : c;
}
