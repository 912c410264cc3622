// needs: exp_dd
// gives: log1p_dd
// log and log1p of double-double numbers, to about 2^-75: a logarithm in double, and a step of
// Newton's.
// log(1 + f) + e ln 2, 1 + f between sqrt(1/2) and sqrt(2).
AUTOFN_FN DoubleDouble log_of_parts(DoubleDouble f, double e) {
  const double y = std::log1p(f.high);
  // (1 + f) exp(-y) - 1, which is small.
  const DoubleDouble m = expm1_of_rest(-y);
  const DoubleDouble w = f + (m + m * f);
  const DoubleDouble log = DoubleDouble(y) + (w - w * w * 0.5);
  const DoubleDouble low = joined(e * 0x1.ef35793c768p-45, e * -0x1.9ff0342542fc3p-90);
  return DoubleDouble(e * 0x1.62e42fefa38p-1) + (log + low);
}

// log(u), or log(1 + d) for a d between -0.29 and 0.41 where it is given.
AUTOFN_FN DoubleDouble log_near(DoubleDouble u, DoubleDouble d, bool near) {
  const double shift = u.high < 0x1p-900 ? 100.0 : (u.high > 0x1p+900 ? -100.0 : 0.0);
  const DoubleDouble v = times_power(u, shift > 0.0 ? 0x1p+100 : (shift < 0.0 ? 0x1p-100 : 1.0));
  const std::uint64_t i =
      (bits(v.high) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd)) & 0x7ff0000000000000;
  const DoubleDouble m = times_power(v, from_bits(0x7fe0000000000000 - i));
  const double e = from_bits(i >> 52 | 0x4330000000000000) - 0x1.00000000003ffp+52;
  const DoubleDouble f = choose(near, d, DoubleDouble(m.high - 1.0) + m.low);
  const DoubleDouble log = log_of_parts(f, near ? 0.0 : e - shift);
  const DoubleDouble odd(u.high == 0.0 ? -INFINITY : (u.high > 0.0 ? u.high : NAN));
  return choose((u.high > 0.0) & (u.high < INFINITY), log, odd);
}

AUTOFN_FN DoubleDouble log_dd(DoubleDouble x) { return log_near(x, 0.0, false); }

AUTOFN_FN DoubleDouble log1p_dd(DoubleDouble x) {
  const bool near = (x.high > -0.29) & (x.high < 0.41);
  return choose(x.high == 0.0, x, log_near(x + 1.0, x, near));
}
