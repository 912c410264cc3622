// needs: log_dd
// log(cosh(x)): by cosh(x) - 1 = m^2 / (2 (m + 1)) with m = exp(-|x|) - 1, far from 0
// |x| + log1p((exp(-2 |x|) - 1) / 2).
AUTOFN_FN DoubleDouble logcosh_dd(DoubleDouble x) {
  const DoubleDouble size = fabs(x), y = choose(size.high < 1.0, size, 1.0), m = expm1_dd(-y);
  const bool near = size.high < 1.0;
  const DoubleDouble far = expm1_dd(size * -2.0) * 0.5, rise = m * (m / ((m + 1.0) * 2.0));
  return choose(near, 0.0, size) + log1p_dd(choose(near, rise, far));
}
