// needs: phi_dd
// exp(x) - 1 - x, and log(1 + x) - x: series near 0.
AUTOFN_FN DoubleDouble expm1mx_dd(DoubleDouble x) {
  const bool near = std::fabs(x.high) < 1.0;
  const DoubleDouble y = choose(near, x, 1.0);
  const DoubleDouble series = y * 0.5 * (y * phi_series_dd<2, 12>(y));
  return choose(near, series, expm1_dd(x) - choose(x.high < 1000.0, x, 0.0));
}
