// needs: root_sum_dd
// gives: root_rise_dd, root_split_dd, share_split_dd
// The root of x + d above that of x; differences of roots of squares and c, and of their slopes.
AUTOFN_FN DoubleDouble root_rise_dd(DoubleDouble x, DoubleDouble d) {
  const DoubleDouble roots = sqrt(x + d) + sqrt(x);
  return choose(roots.high == 0.0, d, choose(d.high == INFINITY, roots, d / roots));
}

AUTOFN_FN DoubleDouble root_split_dd(DoubleDouble u, DoubleDouble v, DoubleDouble m,
                                     DoubleDouble d, DoubleDouble c) {
  const DoubleDouble size = fabs(m), step = fabs(d);
  const bool less = size.high < step.high;
  const DoubleDouble small = choose(less, size, step), large = choose(less, step, size);
  const DoubleDouble mean = root_sum_dd(u, c) * 0.5 + root_sum_dd(v, c) * 0.5;
  const DoubleDouble one = 1.0, part = large / choose(mean.high == 0.0, one, mean);
  const double sign = (m.high < 0.0) == (d.high < 0.0) ? 2.0 : -2.0;
  return choose(large.high == INFINITY, one, part) * sign * small;
}

// u over its root, for infinities too.
AUTOFN_FN DoubleDouble share_dd(DoubleDouble u, DoubleDouble root) {
  const DoubleDouble one = 1.0;
  return choose(std::fabs(u.high) == INFINITY, choose(u.high < 0.0, -one, one), u / root);
}

AUTOFN_FN DoubleDouble share_split_dd(DoubleDouble u, DoubleDouble v, DoubleDouble m,
                                      DoubleDouble d, DoubleDouble c) {
  const DoubleDouble above = root_sum_dd(u, c), below = root_sum_dd(v, c), one = 1.0;
  const DoubleDouble first = share_dd(u, above), last = share_dd(v, below);
  const DoubleDouble many = fabs(first) + fabs(last);
  const DoubleDouble size = fabs(share_dd(m, above)) / choose(many.high == 0.0, one, many);
  const DoubleDouble near = size * 4.0 * (d / below) * (c / above) / below;
  return choose((u.high < 0.0) == (v.high < 0.0), near, first - last);
}
