// needs: exp
// gives: times_normcdf
// v times the standard normal distribution function, rounded to a subnormal number once: an odd
// polynomial about 1/2 for |x| < 1. For the lower tail exp(-x^2 / 2) g(w), w = (y - 5) / (y + 5),
// y = |x|, at most 19, where the exponential is 0; with g multiplied by exp(r) - 1 and added, two
// roundings less. For the upper tail 1 minus that. With v = 1 at most 4.17 ULP, near -12.6, 3.1
// from -11 on, over every float32 (benchmarks/primitives.md).
AUTOFN_FN float at_most_19(float y) {
  return from_bits(bits(y) < 0x41980000u ? bits(y) : 0x41980000u);
}

#ifdef __CUDACC__
// Less of the same to 2^-20, for 16-bit types, with w = (y - 2) / (y + 2).
AUTOFN_FN float quick_times_normcdf(float v, float x) {
  const float y = std::fmin(std::fabs(x), 19.0f);
  const float w = (y - 2.0f) * hardware_reciprocal(y + 2.0f);
  float g = 0x1.e3a02ap-10f;
  g = std::fma(g, w, -0x1.b0293cp-10f);
  g = std::fma(g, w, -0x1.33c9c0p-7f);
  g = std::fma(g, w, 0x1.06c068p-9f);
  g = std::fma(g, w, 0x1.70dc48p-4f);
  g = std::fma(g, w, -0x1.00fa12p-2f);
  g = std::fma(g, w, 0x1.5845dap-3f);
  const float root = hardware_exp2(-0x1.715476p-2f * y * y);
  g = g * root;
  const float z = x * x;
  float q = 0x1.7fd4aep-14f;
  q = std::fma(q, z, -0x1.30e752p-10f);
  q = std::fma(q, z, 0x1.4672a4p-7f);
  q = std::fma(q, z, -0x1.1055eep-4f);
  q = std::fma(q, z, 0x1.98844ap-2f);
  const float middle = v * std::fma(x, q, 0.5f);
  const float upper = v * std::fma(-root, g, 1.0f);
  const float lower = v * g * root;
  const float outside = x > 0.0f ? upper : (y < 19.0f ? lower : 0.0f);
  // NaN too.
  return std::fabs(x) >= 1.0f ? outside : middle;
}
#endif

template <Way kWay> AUTOFN_FN float times_normcdf(float v, float x) {
#ifdef __CUDACC__
  if constexpr (kWay == kQuick) return quick_times_normcdf(v, x);
#endif
  const float y = kWay == kTried ? std::fabs(x) : at_most_19(std::fabs(x));
  const float w = (y - 5.0f) / (y + 5.0f);
  float g = 0x1.903deap-13f;
  g = std::fma(g, w, 0x1.9e0a18p-13f);
  g = std::fma(g, w, -0x1.3bf72cp-9f);
  g = std::fma(g, w, 0x1.26b28ep-7f);
  g = std::fma(g, w, -0x1.7f83a6p-6f);
  g = std::fma(g, w, 0x1.88077ep-5f);
  g = std::fma(g, w, -0x1.4b4d44p-4f);
  g = std::fma(g, w, 0x1.db6b08p-4f);
  g = std::fma(g, w, -0x1.25cd14p-3f);
  g = std::fma(g, w, 0x1.3b0fbcp-4f);
  // Reduced as in exp_product(x, -x / 2), so that a density beside it shares all of this.
  const float h = -0.5f * x;
  const float e = x * h;
  constexpr float shift = kWay == kTried ? 0x1.8000fep+23f : kExpShift;
  const float t = std::fma(e, 0x1.715476p+0f, shift);
  const float n = t - shift;
  float r = std::fma(x, h, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  const float m = std::fma(g, exp_quotient(r) * r, g);
  float tail;
  if constexpr (kWay == kTried) {
    tail = y <= 13.0f ? m * power_of_two(t) : NAN;
    tail = x < 0.0f ? v * tail : tail;
  } else {
    tail = scaled(x < 0.0f ? v * m : m, t);
    tail = e < -174.0f ? 0.0f : tail;
  }
  const float z = x * x;
  float q = 0x1.8b9882p-14f;
  q = std::fma(q, z, -0x1.32951cp-10f);
  q = std::fma(q, z, 0x1.469bcap-7f);
  q = std::fma(q, z, -0x1.105768p-4f);
  q = std::fma(q, z, 0x1.988452p-2f);
  const float middle = std::fma(x, q, 0.5f);
  const float outside = x > 0.0f ? v * (1.0f - tail) : tail;
  return z < 1.0f ? v * middle : outside;
}

AUTOFN_FN float normcdf(float x) { return times_normcdf<kFull>(1.0f, x); }

// erfc(z) / 2 at z = -x / sqrt(2), and its slope times what z was rounded by: erfc's relative error
// is 2 z^2 times that of z.
AUTOFN_FN double normcdf(double x) {
  const double c = 0x1.6a09e667f3bcdp-1, rest = -0x1.bdd3413b26456p-55;  // of sqrt(1/2)
  const double z = -c * x;
  const double rounded = std::fma(-c, x, -z) - rest * x;
  const double d = std::fabs(x) < 40.0 ? rounded : 0.0;
  return 0.5 * std::fma(-0x1.20dd750429b6dp+0 * d, std::exp(-z * z), std::erfc(z));
}

template <Way kWay> AUTOFN_FN double times_normcdf(double v, double x) {
  return x < -40.0 ? 0.0 : v * normcdf(x);
}

// A first try: NaN for |x| > 13. Or for 16-bit types.
template <Way kWay, typename T> AUTOFN_FN T normcdf(T x) {
  return times_normcdf<kWay>(T(1), x);
}

// v normcdf(x + rest), what x lost in rounding: the slope to 5 % where it weighs more than the
// value.
template <Way kWay, typename T> AUTOFN_FN T times_normcdf(T v, T x, T rest) {
  const T p = times_normcdf<kWay>(v, x);
  const bool weighs = (x < T(0)) & (x > T(-60));
  return weighs ? std::fma(p, T(0.5) * rest * (std::sqrt(std::fma(x, x, T(3))) - x), p) : p;
}

template <Way kWay, typename T> AUTOFN_FN T normcdf(T x, T rest) {
  return times_normcdf<kWay>(T(1), x, rest);
}
