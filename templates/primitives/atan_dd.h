// needs: sin_dd
// gives: acos_dd, asin_dd, atan2_dd
// atan2, atan, asin and acos: in double, and what that is off by.
AUTOFN_FN DoubleDouble atan2_dd(DoubleDouble y, DoubleDouble x) {
  const double angle = std::atan2(y.high, x.high);
  const double size = std::fabs(x.high) + std::fabs(y.high);
  const bool ordinary = (size > 0x1p-500) & (size < 0x1p+500);
  const DoubleDouble a = choose(ordinary, y, 0.0), b = choose(ordinary, x, 1.0);
  const SineAndCosine at = sine_and_cosine_dd(ordinary ? angle : 0.0);
  const DoubleDouble cosine = at.less + 1.0;
  const DoubleDouble off = (a * cosine - b * at.sine) / (b * cosine + a * at.sine);
  return choose(ordinary, off + angle, angle);
}

AUTOFN_FN DoubleDouble atan_dd(DoubleDouble x) {
  const bool small = std::fabs(x.high) < 1.0, tiny = std::fabs(x.high) < 0x1p-400;
  const DoubleDouble y = choose(small, x, DoubleDouble(std::copysign(1.0, x.high)));
  const DoubleDouble found = atan2_dd(y, choose(small, 1.0, DoubleDouble(1.0) / fabs(x)));
  return choose(tiny | (x.high != x.high), x, found);
}

AUTOFN_FN DoubleDouble asin_dd(DoubleDouble x) {
  const DoubleDouble one = 1.0;
  return atan2_dd(x, sqrt((one - x) * (one + x)));
}

AUTOFN_FN DoubleDouble acos_dd(DoubleDouble x) {
  const DoubleDouble one = 1.0;
  return atan2_dd(sqrt((one - x) * (one + x)), x);
}
