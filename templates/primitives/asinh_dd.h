// needs: log_dd
// gives: acosh_dd, atanh_dd
// Inverse hyperbolic functions, by logarithms.
AUTOFN_FN DoubleDouble asinh_dd(DoubleDouble x) {
  const DoubleDouble y = fabs(x), z = choose(y.high < 0x1p+100, y, 1.0), square = z * z;
  const DoubleDouble near = log1p_dd(z + square / (sqrt(square + 1.0) + 1.0));
  const DoubleDouble ln2(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56);
  return choose(y.high == 0.0, x, signed_as(choose(y.high < 0x1p+100, near, log_dd(y) + ln2), x));
}

AUTOFN_FN DoubleDouble acosh_dd(DoubleDouble x) {
  const DoubleDouble t = x - 1.0, z = choose(t.high < 0x1p+100, t, 1.0);
  const DoubleDouble ln2(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56);
  return choose(t.high < 0x1p+100, log1p_dd(z + sqrt(z * (z + 2.0))), log_dd(x) + ln2);
}

AUTOFN_FN DoubleDouble atanh_dd(DoubleDouble x) {
  const DoubleDouble y = fabs(x), one = 1.0;
  return choose(y.high == 0.0, x, signed_as(log1p_dd(y * 2.0 / (one - y)) * 0.5, x));
}
