// needs: double_double
// gives: cos_dd, sinc_dd, tan_dd
// sin and cos of double-double numbers, to about 2^-75 up to 2^30, beyond that to double's digits.
struct SineAndCosine {
  DoubleDouble sine, less;  // less: cos - 1
};

template <int N> AUTOFN_FN SineAndCosine sine_doubled(SineAndCosine of) {
  if constexpr (N == 0) {
    return of;
  } else {
    const DoubleDouble twice = of.sine * 2.0;
    return sine_doubled<N - 1>({twice + twice * of.less, -(of.sine * twice)});
  }
}

// For |r| <= pi / 4, by way of r / 8.
AUTOFN_FN SineAndCosine sine_of_rest(DoubleDouble r) {
  const DoubleDouble x = times_power(r, 0.125), z = x * x;
  double q = 0x1.6124613a86d09p-33;
  q = std::fma(q, z.high, -0x1.ae64567f544e4p-26);
  q = std::fma(q, z.high, 0x1.71de3a556c734p-19);
  q = std::fma(q, z.high, -0x1.a01a01a01a01ap-13);
  DoubleDouble s = DoubleDouble(0x1.1111111111111p-7, 0x1.1111111111111p-63) + z.high * q;
  s = DoubleDouble(-0x1.5555555555555p-3, -0x1.5555555555555p-57) + z * s;
  s = x + x * (z * s);
  double p = -0x1.93974a8c07c9dp-37;
  p = std::fma(p, z.high, 0x1.1eed8eff8d898p-29);
  p = std::fma(p, z.high, -0x1.27e4fb7789f5cp-22);
  p = std::fma(p, z.high, 0x1.a01a01a01a01ap-16);
  DoubleDouble c = DoubleDouble(-0x1.6c16c16c16c17p-10, 0x1.f49f49f49f49fp-65) + z.high * p;
  c = DoubleDouble(0x1.5555555555555p-5, 0x1.5555555555555p-59) + z * c;
  c = z * (z * c - 0.5);
  return sine_doubled<3>({s, c});
}

// Of x up to 2^30, n pi / 2 = x - r.
AUTOFN_FN SineAndCosine sine_and_cosine_dd(DoubleDouble x) {
  const double t = std::fma(x.high, 0x1.45f306dc9c883p-1, 0x1.8p+52), n = t - 0x1.8p+52;
  // Products with the first five parts of pi / 2, of 23 bits each, are exact.
  const double h = std::fma(n, -0x1.921fb4p+0, x.high);
  DoubleDouble r = DoubleDouble(h) + n * -0x1.4442dp-24 + n * -0x1.846988p-48;
  r = r + n * -0x1.8cc514p-72 + n * -0x1.80dc1cp-95 + x.low;
  r = r + DoubleDouble(n) * DoubleDouble(-0x1.a252049c1114dp-120);
  const SineAndCosine found = sine_of_rest(r);
  const std::uint64_t u = bits(t);
  const bool odd = (u & 1) != 0;
  const DoubleDouble cosine = found.less + 1.0;
  const DoubleDouble sine = choose(odd, cosine, found.sine);
  const DoubleDouble other = choose(odd, -found.sine, cosine);
  const bool turned = (u & 2) != 0;
  const DoubleDouble less = choose((u & 3) != 0, choose(turned, -other, other) - 1.0, found.less);
  return {choose(turned, -sine, sine), less};
}

// By half the angle: of a sine and a cosine of one angle GNU's compiler makes one call, which it
// does not vectorise.
AUTOFN_FN double cosine_by_half(double x) {
  const double half = std::sin(0.5 * x);
  return std::fma(-2.0 * half, half, 1.0);
}

// Beyond that in double, of a sum: the low part may be large.
AUTOFN_FN DoubleDouble sin_dd(DoubleDouble x) {
  const double first = std::sin(x.high) * cosine_by_half(x.low);
  const DoubleDouble far(std::fma(cosine_by_half(x.high), std::sin(x.low), first));
  const DoubleDouble found = choose(std::fabs(x.high) < 0x1p+30, sine_and_cosine_dd(x).sine, far);
  return choose(x.high == 0.0, x, found);
}

AUTOFN_FN DoubleDouble cos_dd(DoubleDouble x) {
  const double first = cosine_by_half(x.high) * cosine_by_half(x.low);
  const DoubleDouble far(std::fma(-std::sin(x.high), std::sin(x.low), first));
  return choose(std::fabs(x.high) < 0x1p+30, sine_and_cosine_dd(x).less + 1.0, far);
}

AUTOFN_FN DoubleDouble tan_dd(DoubleDouble x) { return sin_dd(x) / cos_dd(x); }

AUTOFN_FN DoubleDouble sinc_dd(DoubleDouble x) {
  const bool far = std::fabs(x.high) == INFINITY;
  return choose(x.high == 0.0, 1.0, choose(far, 0.0, sin_dd(x) / x));
}
