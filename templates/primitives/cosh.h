// cosh(x): (e + 1 / e) / 2 with e = exp(|x|) as 2^n + 2^n (exp(r) - 1). At most 1.30 ULP over every
// float32 (benchmarks/primitives.md).
AUTOFN_FN float cosh(float x) {
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
  p = s + std::fma(s, p, d);
  return y > 89.5f ? INFINITY : p + p;
}

AUTOFN_FN double cosh(double x) { return std::cosh(x); }

// cosh(x + rest), what x lost in rounding. The slope is about the value itself beyond 1, and of no
// weight before.
template <typename T> AUTOFN_FN T cosh(T x, T rest) {
  const T c = autofn::cosh(x);
  const T sign = x > T(1) ? T(1) : (x < T(-1) ? T(-1) : x);
  return c < T(INFINITY) ? std::fma(c, sign * rest, c) : c;
}
