// needs: sin_dd, spherical_bessel_dd
// gives: cospi_dd, sincpi_dd, spherical_bessel_pi_dd
// sin(pi x / y) and its like of double-double numbers: of x less a whole number of y.
struct TurnedDoubled {
  DoubleDouble left;
  bool odd;
};

AUTOFN_FN TurnedDoubled half_turns_dd(DoubleDouble x, DoubleDouble y) {
  const double turns = x.high / y.high, shifted = turns + 0x1.8p+52;
  const double n = shifted - 0x1.8p+52;
  if (std::fabs(turns) <= 0x1p+50) {
    // The product's two parts are exact, and so is the first difference.
    const double product = n * y.high, rest = std::fma(n, y.high, -product);
    const DoubleDouble left = DoubleDouble(x.high - product) - rest + x.low;
    return {left - DoubleDouble(n) * y.low, (bits(shifted) & 1) != 0};
  }
  int whole, more;
  const double left = ::remquo(x.high, y.high, &whole), rest = ::remquo(x.low, y.high, &more);
  return {DoubleDouble(left) + rest, ((whole + more) & 1) != 0};
}

AUTOFN_FN DoubleDouble times_pi_dd(DoubleDouble x) {
  return x * DoubleDouble(0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53);
}

AUTOFN_FN DoubleDouble sinpi_dd(DoubleDouble x, DoubleDouble y) {
  const TurnedDoubled at = half_turns_dd(x, y);
  const DoubleDouble found = sin_dd(times_pi_dd(at.left / y));
  return choose(at.odd, -found, found);
}

AUTOFN_FN DoubleDouble cospi_dd(DoubleDouble x, DoubleDouble y) {
  const TurnedDoubled at = half_turns_dd(x, y);
  const DoubleDouble size = fabs(y), distance = times_power(size, 0.5) - fabs(at.left);
  const DoubleDouble found = sin_dd(times_pi_dd(distance / size));
  return choose(at.odd, -found, found);
}

AUTOFN_FN DoubleDouble sincpi_dd(DoubleDouble x, DoubleDouble y) {
  const bool far = std::fabs(x.high) == INFINITY;
  const DoubleDouble found = sinpi_dd(x, y) / times_pi_dd(x / y);
  return choose(x.high == 0.0, 1.0, choose(far, 0.0, found));
}

template <int N> AUTOFN_FN DoubleDouble spherical_bessel_pi_dd(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble u = times_pi_dd(x / y);
  return spherical_bessel_of_dd<N>(u, sinpi_dd(x, y), cospi_dd(x, y));
}
