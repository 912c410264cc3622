// needs: hardware
// gives: exp_within
// exp(x): 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 in two steps, a polynomial of degree 6;
// the factor 2^n in two halves, so that subnormals round once. At most 0.90 ULP over every float32
// (benchmarks/primitives.md).
// 1.5 * 2^23 + 254: the low bits of x / ln 2 + kExpShift hold n + 254, twice the bias.
constexpr float kExpShift = 0x1.8001fcp+23f;

// (exp(r) - 1) / r
AUTOFN_FN float exp_quotient(float r) {
  float p = 0x1.6ac144p-10f;
  p = std::fma(p, r, 0x1.123da6p-7f);
  p = std::fma(p, r, 0x1.555858p-5f);
  p = std::fma(p, r, 0x1.55548cp-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  return std::fma(p, r, 1.0f);
}

// p 2^n, where the low bits of t hold n + 254.
AUTOFN_FN float scaled(float p, float t) {
  const std::uint32_t u = bits(t);
  const std::uint32_t a = (u << 22) & 0xff800000u;
  const std::uint32_t b = (u << 23) - a;
  return p * from_bits(a) * from_bits(b);
}

// exp(x) from r, and from t with n in its low bits.
AUTOFN_FN float exp_reduced(float x, float t, float r) {
  float p = scaled(std::fma(exp_quotient(r), r, 1.0f), t);
  p = x > 89.0f ? INFINITY : p;
  return x < -104.0f ? 0.0f : p;
}

AUTOFN_FN float exp(float x) {
#ifdef __CUDACC__
  return ::expf(x);
#else
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  return exp_reduced(x, t, r);
#endif
}

// In double the same with a polynomial of degree 12, without the rounding of r and of 1 + r: about
// 0.66 ULP. 1.5 * 2^52 + 2046:
constexpr double kDoubleShift = 0x1.80000000007fep+52;

AUTOFN_FN double exp_of(double r, double l) {
  double q = 0x1.1f8b4e34e2489p-29;
  q = std::fma(q, r, 0x1.af4dea17e3fc2p-26);
  q = std::fma(q, r, 0x1.27e4ccccc090bp-22);
  q = std::fma(q, r, 0x1.71de023141a2ep-19);
  q = std::fma(q, r, 0x1.a01a01acfb531p-16);
  q = std::fma(q, r, 0x1.a01a01abe81ccp-13);
  q = std::fma(q, r, 0x1.6c16c16c151fbp-10);
  q = std::fma(q, r, 0x1.11111111100dbp-7);
  q = std::fma(q, r, 0x1.5555555555558p-5);
  q = std::fma(q, r, 0x1.5555555555557p-3);
  q = std::fma(q, r, 0.5);
  const double s = 1.0 + r;
  return s + ((r - (s - 1.0)) + std::fma(q, r * r, l));
}

AUTOFN_FN double scaled(double p, double t) {
  const std::uint64_t u = bits(t);
  const std::uint64_t a = (u << 51) & 0xfff0000000000000u;
  const std::uint64_t b = (u << 52) - a;
  return p * from_bits(a) * from_bits(b);
}

// exp(x + rest) as p 2^n, where the low bits of t hold n + 2046.
AUTOFN_FN double exp_reduced(double x, double rest, double t) {
  const double n = t - kDoubleShift;
  const double h = std::fma(n, -0x1.62e42feep-1, x);
  const double m = std::fma(n, -0x1.a39ef35793c76p-33, rest);
  const double r = h + m;
  return exp_of(r, (h - r) + m);
}

// exp(x + rest) for a rest that is small beside x: what x lost in rounding, which would cost as
// many roundings as x is large.
AUTOFN_FN float exp(float x, float rest) {
#ifdef __CUDACC__
  const float e = ::expf(x);
  return std::fabs(x) < 200.0f ? std::fma(e, rest, e) : e;
#else
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r) + rest;
  return exp_reduced(x, t, r);
#endif
}

AUTOFN_FN double exp(double x, double rest = -0.0) {
  const double t = std::fma(x, 0x1.71547652b82fep+0, kDoubleShift);
  double p = scaled(exp_reduced(x, rest, t), t);
  p = x > 710.0 ? INFINITY : p;
  return x < -746.0 ? 0.0 : p;
}

// The same for |x| <= 87.
AUTOFN_FN float exp_at_most_87(float x, float rest) {
  // 1.5 * 2^23 + 127
  const float t = std::fma(x, 0x1.715476p+0f, 0x1.8000fep+23f);
  const float n = t - 0x1.8000fep+23f;
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r) + rest;
  return std::fma(exp_quotient(r), r, 1.0f) * power_of_two(t);
}

// Else NaN: a first try that costs two thirds of it.
AUTOFN_FN float exp_near(float x, float rest = -0.0f) {
  return std::fabs(x) <= 87.0f ? exp_at_most_87(x, rest) : NAN;
}

template <typename... R> AUTOFN_FN double exp_near(double x, R... rest) {
  return autofn::exp(x, rest...);
}

// The same within another limit, at most 87. In double perhaps quickly.
template <int kLimit, Way kWay, typename T, typename... R> AUTOFN_FN T exp_within(T x, R... rest) {
  T found;
  if constexpr (sizeof(T) == 4) {
    found = exp_at_most_87(x, (-0.0f + ... + rest));
  } else if constexpr (kWay == kQuick) {
    found = quick_exp_within_range(x);
  } else {
    found = autofn::exp(x, rest...);
  }
  return std::fabs(x) <= T(kLimit) ? found : T(NAN);
}

#ifdef __CUDACC__
// The root of exp(x), to 2^-22 and what x is rounded by: of its square subnormals round once.
AUTOFN_FN float exp_root(float x) { return hardware_exp2(0x1.715476p-1f * x); }

AUTOFN_FN float quick_exp(float x) {
  const float root = exp_root(x);
  return root * root;
}
#endif

template <Way kWay, typename T, typename... R> AUTOFN_FN T exp(T x, R... rest) {
  if constexpr (kWay == kTried) {
    return exp_near(x, rest...);
  } else if constexpr (kWay == kQuick) {
    return quick_exp(x);
  } else {
    return autofn::exp(x, rest...);
  }
}
