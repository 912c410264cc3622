// needs: log_dd
// gives: log1mexp_dd, logaddexp_dd
// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), log(exp(a) + exp(b)),
// and log(1 - exp(u)).
AUTOFN_FN DoubleDouble softplus_dd(DoubleDouble x) {
  return choose(x.high < 0.0, 0.0, x) + log1p_dd(exp_dd(-fabs(x)));
}

AUTOFN_FN DoubleDouble logaddexp_dd(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble sum = greater(a, b) + log1p_dd(exp_dd(-fabs(a - b)));
  return choose(a == b, a + DoubleDouble(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56), sum);
}

AUTOFN_FN DoubleDouble log1mexp_dd(DoubleDouble u) {
  const DoubleDouble near = choose(u.high > -0.5, u, -0.5), far = choose(u.high > -0.5, -0.5, u);
  return choose(u.high > -0.5, log_dd(-expm1_dd(near)), log1p_dd(-exp_dd(far)));
}
