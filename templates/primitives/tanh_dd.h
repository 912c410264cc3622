// needs: exp_dd
// gives: cosh_dd, sech2_dd, sinh_dd, times_sech2_dd
// Hyperbolic functions by way of exp(x) - 1.
AUTOFN_FN DoubleDouble tanh_dd(DoubleDouble x) {
  const DoubleDouble m = expm1_dd(fabs(x) * -2.0);
  return choose(x.high == 0.0, x, signed_as(-m / (m + 2.0), x));
}

// 1 / cosh(x)**2, and times v, which is rounded to a subnormal number once.
AUTOFN_FN DoubleDouble times_sech2_dd(DoubleDouble v, DoubleDouble x) {
  const DoubleDouble y = fabs(x) * -2.0, d = exp_dd(y) + 1.0;
  return times_exp_dd(v * 4.0 / (d * d), y);
}

AUTOFN_FN DoubleDouble sech2_dd(DoubleDouble x) { return times_sech2_dd(1.0, x); }

AUTOFN_FN DoubleDouble sinh_dd(DoubleDouble x) {
  const DoubleDouble size = fabs(x), m = expm1_dd(size);
  const DoubleDouble near = (m + m / (m + 1.0)) * 0.5;
  return signed_as(choose(size.high > 50.0, times_exp_dd(0.5, size), near), x);
}

AUTOFN_FN DoubleDouble cosh_dd(DoubleDouble x) {
  const DoubleDouble size = fabs(x);
  return times_exp_dd(0.5, size) + times_exp_dd(0.5, -size);
}
