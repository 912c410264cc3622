// sinh(x): an odd polynomial below 1, else (e - 1 / e) / 2 with e = exp(|x|) as 2^n +
// 2^n (exp(r) - 1). At most 1.30 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float sinh(float x) {
  const float y = std::fabs(x);
  // 1.5 * 2^23 + 125: t shifted is 2^(n - 2), a quarter of exp(|x|) less its factor exp(r).
  const float t = std::fma(y, 0x1.715476p+0f, 0x1.8000fap+23f);
  const float n = t - 0x1.8000fap+23f;
  float r = std::fma(n, -0x1.62e4p-1f, y);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6bedeap-10f;
  p = std::fma(p, r, 0x1.122872p-7f);
  p = std::fma(p, r, 0x1.5556c2p-5f);
  p = std::fma(p, r, 0x1.5554bp-3f);
  p = std::fma(p, r, 0x1.fffffep-2f);
  p = std::fma(p, r * r, r);
  const float s = power_of_two(t);
  const float d = 0.0625f / std::fma(s, p, s);
  p = s + std::fma(s, p, -d);
  p = y > 89.5f ? INFINITY : p + p;
  const float z = x * x;
  float q = 0x1.7a157ep-19f;
  q = std::fma(q, z, 0x1.9ffe7p-13f);
  q = std::fma(q, z, 0x1.111124p-7f);
  q = std::fma(q, z, 0x1.555556p-3f);
  q = std::fma(q * z, y, y);
  // NaN too.
  p = y >= 1.0f ? p : q;
  return from_bits(bits(p) | (bits(x) & 0x80000000u));
}

AUTOFN_FN double sinh(double x) { return std::sinh(x); }

// sinh(x + rest), what x lost in rounding, with about its slope.
template <typename T> AUTOFN_FN T sinh(T x, T rest) {
  const T s = autofn::sinh(x), size = std::fabs(s);
  return size < T(INFINITY) ? std::fma(size > T(1) ? size : T(1), rest, s) : s;
}
