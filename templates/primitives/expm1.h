// needs: exp
// expm1(x): x = n ln 2 + r; 2^n r + (2^n - 1), exact where it cancels, and 2^n r^2 q(r) with q of
// degree 4. At most 1.20 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float expm1(float x) {
#ifdef __CUDACC__
  return ::expm1f(x);
#else
  // n goes up at log2(1.5), r in [log 0.75, log 1.5): no cancellation in the last sum meets a
  // larger rounding of exp(r) - 1 than half of the result's.
  // 1.5 * 2^23 + 126: t shifted is 2^(n - 1), and twice that may overflow.
  const float t = std::fma(x, 0x1.715476p+0f, -0.0849625f) + 0x1.8000fcp+23f;
  const float n = t - 0x1.8000fcp+23f;
  const float h = std::fma(n, -0x1.62e4p-1f, x);
  const float r = std::fma(n, -0x1.7f7d1cp-20f, h);
  float p = 0x1.7ed0e8p-10f;
  p = std::fma(p, r, 0x1.11e5a0p-7f);
  p = std::fma(p, r, 0x1.5546a4p-5f);
  p = std::fma(p, r, 0x1.5554e8p-3f);
  p = std::fma(p, r, 0x1.000004p-1f);
  p = std::fma(p, r * r, n * -0x1.7f7d1cp-20f) + h;
  const float s = power_of_two(t);
  p = std::fma(p, s, s - 0.5f);
  p = p + p;
  p = x > 89.0f ? INFINITY : p;
  p = x < -20.0f ? -1.0f : p;
  return x == 0.0f ? x : p;
#endif
}

AUTOFN_FN double expm1(double x) { return std::expm1(x); }

#ifdef __CUDACC__
// To 2^-19, for 16-bit types: a polynomial of degree 6, and exp(x) - 1.
AUTOFN_FN float quick_expm1(float x) {
  float p = 0x1.6f5a3ep-10f;
  p = std::fma(p, x, 0x1.1383bep-7f);
  p = std::fma(p, x, 0x1.555174p-5f);
  p = std::fma(p, x, 0x1.5551a8p-3f);
  p = std::fma(p, x, 0x1.000002p-1f);
  p = std::fma(p, x, 1.0f);
  const float root = exp_root(x);
  return std::fabs(x) < 0.5f ? p * x : std::fma(root, root, -1.0f);
}
#endif

// Or quickly.
template <Way kWay, typename T> AUTOFN_FN T expm1(T x) {
  if constexpr (kWay == kQuick) {
    return quick_expm1(x);
  } else {
    return autofn::expm1(x);
  }
}

// expm1(x + rest), what x lost in rounding: no number where x has overflowed.
template <Way kWay, typename T> AUTOFN_FN T expm1(T x, T rest) {
  const T e = autofn::expm1<kWay>(x);
  const bool weighs = (e > T(-1)) & (e < T(INFINITY));
  return weighs ? std::fma(e + T(1), rest, e) : e;
}
