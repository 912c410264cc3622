// needs: exp_dd
// gives: times_sigmoid_dd
// 1 / (1 + exp(-x)), and times v, which is rounded to a subnormal number once.
AUTOFN_FN DoubleDouble sigmoid_dd(DoubleDouble x) {
  const DoubleDouble e = exp_dd(-fabs(x)), r = DoubleDouble(1.0) / (e + 1.0);
  return choose(x.high < 0.0, e * r, r);
}

AUTOFN_FN DoubleDouble times_sigmoid_dd(DoubleDouble v, DoubleDouble x) {
  const DoubleDouble size = -fabs(x), w = v / (exp_dd(size) + 1.0);
  return choose(x.high < 0.0, times_exp_dd(w, size), w);
}
