// needs: double_double
// gives: expm1_dd, times_exp_dd
// exp and its like of double-double numbers, to about 2^-75.
// From m = exp(x) - 1 that of 2^N x. No loops in what loops over it are to be vectorised.
template <int N> AUTOFN_FN DoubleDouble expm1_doubled(DoubleDouble m) {
  if constexpr (N == 0) {
    return m;
  } else {
    return expm1_doubled<N - 1>(m * (m + 2.0));
  }
}

// exp(r) - 1 for |r| <= 0.36, by way of r / 16.
AUTOFN_FN DoubleDouble expm1_of_rest(DoubleDouble r) {
  const DoubleDouble s = times_power(r, 0.0625);
  double q = 0x1.ae64567f544e4p-26;
  q = std::fma(q, s.high, 0x1.27e4fb7789f5cp-22);
  q = std::fma(q, s.high, 0x1.71de3a556c734p-19);
  q = std::fma(q, s.high, 0x1.a01a01a01a01ap-16);
  q = std::fma(q, s.high, 0x1.a01a01a01a01ap-13);
  q = std::fma(q, s.high, 0x1.6c16c16c16c17p-10);
  q = std::fma(q, s.high, 0x1.1111111111111p-7);
  DoubleDouble m = DoubleDouble(0x1.5555555555555p-5, 0x1.5555555555555p-59) + s.high * q;
  m = DoubleDouble(0x1.5555555555555p-3, 0x1.5555555555555p-57) + s * m;
  return expm1_doubled<4>(s + s * (s * (DoubleDouble(0.5) + s * m)));
}

// x = n ln 2 + r.
AUTOFN_FN DoubleDouble rest_of_log2(DoubleDouble x, double n) {
  const double h = std::fma(n, -0x1.62e42fefa38p-1, x.high);
  const DoubleDouble low = joined(n * -0x1.ef35793c768p-45, n * 0x1.9ff0342542fc3p-90);
  return DoubleDouble(h) + x.low + low;
}

// v (1 + m) 2^n, the factor 2^n in two halves.
AUTOFN_FN DoubleDouble times_power_of(DoubleDouble p, double n) {
  const double half = std::floor(0.5 * n);
  const double a = from_bits(bits(half + 0x1.80000000003ffp+52) << 52);
  const double b = from_bits(bits((n - half) + 0x1.80000000003ffp+52) << 52);
  return times_power(times_power(p, a), b);
}

// v exp(x): 0 where x is very negative, whatever v is.
AUTOFN_FN DoubleDouble times_exp_dd(DoubleDouble v, DoubleDouble x) {
  const double n = std::fma(x.high, 0x1.71547652b82fep+0, 0x1.8p+52) - 0x1.8p+52;
  const DoubleDouble m = expm1_of_rest(rest_of_log2(x, n));
  DoubleDouble p = times_power_of(v * (m + 1.0), n);
  p = choose(x.high > 1416.0, DoubleDouble(v.high * 0x1p+1023 * 0x1p+1023), p);
  return choose(x.high < -1416.0, DoubleDouble(0.0), joined(p.high, p.low));
}

AUTOFN_FN DoubleDouble exp_dd(DoubleDouble x) { return times_exp_dd(1.0, x); }

AUTOFN_FN DoubleDouble expm1_dd(DoubleDouble x) {
  const double n = std::fma(x.high, 0x1.71547652b82fep+0, 0x1.8p+52) - 0x1.8p+52;
  const DoubleDouble m = expm1_of_rest(rest_of_log2(x, n));
  // 2^n m + (2^n - 1)
  const double power = from_bits(bits((n > 1000.0 ? 1000.0 : n) + 0x1.80000000003ffp+52) << 52);
  const DoubleDouble near = times_power(m, power) + (DoubleDouble(power) - 1.0);
  const DoubleDouble p = choose(x.high > 200.0, exp_dd(x), near);
  return choose(x.high < -200.0, DoubleDouble(-1.0), choose(x.high == 0.0, x, p));
}
