// needs: log_dd
// gives: pow1pm1_dd, xlog1py_dd, xlogy_dd
// b**e by its logarithm for a positive finite b; what else there is in double.
AUTOFN_FN DoubleDouble pow_dd(DoubleDouble b, DoubleDouble e) {
  const bool ordinary = (b.high > 0.0) & (b.high < INFINITY) & (std::fabs(e.high) < 0x1p+60);
  const DoubleDouble found = exp_dd(e * log_dd(choose(ordinary, b, 1.0)));
  return choose(ordinary, found, std::pow(b.high, e.high));
}

// (1 + x)**y - 1.
AUTOFN_FN DoubleDouble pow1pm1_dd(DoubleDouble x, DoubleDouble y) {
  return choose(x.high > -1.0, expm1_dd(y * log1p_dd(x)), pow_dd(x + 1.0, y) - 1.0);
}

AUTOFN_FN DoubleDouble xlogy_dd(DoubleDouble v, DoubleDouble u) {
  const bool zero = (v.high == 0.0) & (u.high >= 0.0);
  return choose(zero, v, v * log_dd(u));
}

AUTOFN_FN DoubleDouble xlog1py_dd(DoubleDouble v, DoubleDouble u) {
  const bool zero = (v.high == 0.0) & (u.high >= -1.0);
  return choose(zero, v, v * log1p_dd(u));
}
