// needs: softplus_dd, sigmoid_dd
// softplus(x + d) - softplus(x), from the lower of the two; far from one another they do not
// cancel.
AUTOFN_FN DoubleDouble softplus_rise_dd(DoubleDouble x, DoubleDouble d) {
  const DoubleDouble y = x + d, size = fabs(d);
  const bool up = d.high >= 0.0;
  const DoubleDouble low = choose(up, x, y), high = choose(up, y, x);
  const DoubleDouble near = log1p_dd(times_sigmoid_dd(expm1_dd(size), low));
  const DoubleDouble below = softplus_dd(high) - softplus_dd(low);
  const DoubleDouble above = size + (softplus_dd(-high) - softplus_dd(-low));
  const DoubleDouble rise = choose(size.high < 64.0, near, choose(low.high < 0.0, below, above));
  return choose(up, rise, -rise);
}
