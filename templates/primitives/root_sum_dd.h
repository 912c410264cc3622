// needs: double_double
// gives: mean_root_dd, root_rest_dd
// sqrt(a**2 + c), its mean with a, and what it is above sqrt(c).
AUTOFN_FN DoubleDouble root_sum_dd(DoubleDouble a, DoubleDouble c) {
  const DoubleDouble size = fabs(a);
  return choose(size.high > 0x1p+500, size, sqrt(a * a + c));
}

AUTOFN_FN DoubleDouble mean_root_dd(DoubleDouble a, DoubleDouble c) {
  const DoubleDouble root = (fabs(a) + root_sum_dd(a, c)) * 0.5;
  return choose(a.high < 0.0, c * 0.25 / root, root);
}

AUTOFN_FN DoubleDouble root_rest_dd(DoubleDouble a, DoubleDouble c) {
  const DoubleDouble rest = a * (a / (root_sum_dd(a, c) + sqrt(c)));
  return choose(std::fabs(a.high) == INFINITY, fabs(a), rest);
}
