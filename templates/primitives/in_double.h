// How what is computed in double is, whatever T is: quickly for a result in single precision; where
// that may be NaN, as a first try only.
template <typename T, bool kMayBeNan = false> AUTOFN_FN constexpr Way in_double(Way way) {
  return sizeof(T) == 4 && (!kMayBeNan || way == kTried) ? kQuick : way;
}

// (exp(r) - 1) / r for |r| <= ln(2) / 2, to 2^-37.
AUTOFN_FN double quick_exp_quotient(double r) {
  double p = 0x1.a17e01eda22b6p-16;
  p = std::fma(p, r, 0x1.a17e07de64148p-13);
  p = std::fma(p, r, 0x1.6c162ff1280e7p-10);
  p = std::fma(p, r, 0x1.1110a61547682p-7);
  p = std::fma(p, r, 0x1.5555558294227p-5);
  p = std::fma(p, r, 0x1.5555557e78dfbp-3);
  p = std::fma(p, r, 0x1.fffffffff02f8p-2);
  return std::fma(p, r, 0x1.fffffffff61d3p-1);
}

// 1.5 * 2^52 + 1023: the low bits of x / ln 2 + kQuickShift hold n + 1023.
constexpr double kQuickShift = 0x1.80000000003ffp+52;

// 2^n
AUTOFN_FN double quick_power_of_two(double t) {
  return from_bits(bits(t) << 52);
}

// exp(x) for x from -708 to 709, else anything.
AUTOFN_FN double quick_exp_within_range(double x) {
  const double t = std::fma(x, 0x1.71547652b82fep+0, kQuickShift);
  const double r = std::fma(t - kQuickShift, -0x1.62e42fefa39efp-1, x);
  return std::fma(quick_exp_quotient(r), r, 1.0) * quick_power_of_two(t);
}

// exp(-y) for y >= 0, as exp in single precision, with a polynomial of degree 8; not subnormal.
AUTOFN_FN double quick_decay(double y) {
  const double p = quick_exp_within_range(-y);
  return y > 708.0 ? 0.0 : p;
}

// The largest result is exp(709): infinite in single precision, even with some factors of 2^-149.
AUTOFN_FN double quick_exp(double x) {
  const double p = quick_exp_within_range(x > 709.0 ? 709.0 : x);
  return x < -708.0 ? 0.0 : p;
}

// The same of exp(x) - 1.
AUTOFN_FN double quick_expm1_within_range(double x) {
  const double t = std::fma(x, 0x1.71547652b82fep+0, kQuickShift);
  const double r = std::fma(t - kQuickShift, -0x1.62e42fefa39efp-1, x);
  const double s = quick_power_of_two(t);
  return std::fma(quick_exp_quotient(r) * r, s, s - 1.0);
}

AUTOFN_FN double quick_expm1(double x) {
  double p = quick_expm1_within_range(x);
  p = x > 709.0 ? INFINITY : p;
  p = x < -708.0 ? -1.0 : p;
  return x == 0.0 ? x : p;
}

// expm1(2 |x|) / (expm1(2 |x|) + 2); 1 in double, too, from 20 on.
AUTOFN_FN double quick_tanh(double x) {
  const double e = quick_expm1_within_range(std::fabs(x) > 20.0 ? 40.0 : 2.0 * std::fabs(x));
  return from_bits(bits(e / (e + 2.0)) | (bits(x) & 0x8000000000000000));
}

// v exp(x), 0 where exp(x) is, whatever v is. Compilers share exp(x) among several products.
AUTOFN_FN double quick_times_exp(double v, double x) {
  const double p = v * quick_exp_within_range(x > 709.0 ? 709.0 : x);
  return x < -708.0 ? 0.0 : p;
}

// Of u = 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2): the bits of 2^e.
AUTOFN_FN std::uint64_t above_root_half(double u) {
  return (bits(u) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd)) & 0x7ff0000000000000;
}

// e, by way of the bits of 2^52 + e + 1023.
AUTOFN_FN double exponent(std::uint64_t i) {
  return from_bits(i >> 52 | 0x4330000000000000) - 0x1.00000000003ffp+52;
}

// log(1 + f) + e ln 2 to 2^-36, by the series of 2 atanh(f / (2 + f)).
AUTOFN_FN double quick_log(double f, double e) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 0x1.e3baef040ab6ep-3;
  p = std::fma(p, z, 0x1.243272264f92ep-2);
  p = std::fma(p, z, 0x1.999a9ddebecdbp-2);
  p = std::fma(p, z, 0x1.555554d9eda69p-1);
  p = std::fma(p, z, 0x1.0000000004ad9p+1);
  return std::fma(e, 0x1.62e42fefa39efp-1, s * p);
}

// Infinity and NaN as they are, what is negative as NaN. Nested conditions would do, but of what is
// the same for all elements compilers make branches of them, and no vectors.
AUTOFN_FN double infinite_or_nan(double x) {
  return from_bits(bits(x) | (x < 0.0 ? 0x7ff8000000000000 : 0));
}

AUTOFN_FN double quick_log(double x) {
  const bool tiny = x < 0x1p-1022;
  const double y = tiny ? x * 0x1p+54 : x;
  const std::uint64_t i = above_root_half(y);
  const double m = from_bits(bits(y) - i + 0x3ff0000000000000);
  double r = quick_log(m - 1.0, exponent(i) - (tiny ? 54.0 : 0.0));
  r = bits(x) < 0x7ff0000000000000 ? r : infinite_or_nan(x);
  return x == 0.0 ? -INFINITY : r;
}

AUTOFN_FN double quick_log1p(double x) {
  const double u = x + 1.0;
  const std::uint64_t i = above_root_half(u);
  const double s = from_bits(0x7fe0000000000000 - i);  // 2^-e
  double r = quick_log(std::fma(x, s, s - 1.0), exponent(i));
  r = bits(u) < 0x7ff0000000000000 ? r : infinite_or_nan(u);
  return u == 0.0 ? -INFINITY : r;
}

// sin(x + rest + quarters pi / 2) for |x| <= 2^17, else NaN: r = x - n pi / 2, n = round(2 x / pi),
// and a polynomial for sin(r), to 2^-37, or cos(r).
AUTOFN_FN double quick_sine(double x, double rest, std::uint64_t quarters) {
  const double t = std::fma(x, 0x1.45f306dc9c883p-1, 0x1.8p+52);
  const double n = t - 0x1.8p+52;
  const double h = std::fma(n, -0x1.921fb54442d18p+0, x);
  const double r = std::fma(n, -0x1.1a62633145c07p-54, h) + rest;
  const double z = r * r;
  double s = 0x1.6cd838c22d0acp-19;
  s = std::fma(s, z, -0x1.a00f9d232ff0bp-13);
  s = std::fma(s, z, 0x1.11110895aa237p-7);
  s = std::fma(s, z, -0x1.5555554cb90dep-3);
  s = std::fma(s * z, r, r);
  double c = -0x1.23d7e6049544ap-22;
  c = std::fma(c, z, 0x1.a00f10f029922p-16);
  c = std::fma(c, z, -0x1.6c16b3ff3b424p-10);
  c = std::fma(c, z, 0x1.55555546f2b7ep-5);
  c = std::fma(c, z, -0x1.ffffffffebf98p-2);
  c = std::fma(c, z, 1.0);
  const std::uint64_t u = bits(t) + quarters;
  const double p = (u & 1) != 0 ? c : s;
  const double found = from_bits(bits(p) ^ ((u & 2) << 62));
  return std::fabs(x) <= 0x1p+17 ? found : NAN;
}

AUTOFN_FN double quick_sin(double x, double rest = -0.0) { return quick_sine(x, rest, 0); }
AUTOFN_FN double quick_cos(double x, double rest = -0.0) { return quick_sine(x, rest, 1); }
