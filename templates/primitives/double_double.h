// Double-double numbers: unevaluated sums of two doubles, the second at most half a unit of the
// first's last place, 0 where that is not finite. Each operation is right to about 2^-100, less
// where parts are subnormal (Dekker 1971; Hida, Li, Bailey 2001). Selects, no branches.
struct DoubleDouble {
  double high, low;
  AUTOFN_FN DoubleDouble(double value) : high(value), low(0.0) {}
  AUTOFN_FN DoubleDouble(double h, double l) : high(h), low(l) {}
};

// a + b, for a much larger a.
AUTOFN_FN DoubleDouble joined(double a, double b) {
  const bool finite = std::fabs(a) < INFINITY;
  const double rest = finite ? b : 0.0;
  const double sum = a + rest, low = rest - (sum - a);
  return {sum, finite ? low : 0.0};
}

AUTOFN_FN DoubleDouble operator-(DoubleDouble a) { return {-a.high, -a.low}; }

AUTOFN_FN DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const double sum = a.high + b.high, t = sum - a.high;
  const double rest = (a.high - (sum - t)) + (b.high - t);
  return joined(sum, rest + (a.low + b.low));
}

AUTOFN_FN DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

AUTOFN_FN DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const double product = a.high * b.high;
  double rest = std::fma(a.high, b.high, -product);
  rest = std::fma(a.high, b.low, rest);
  return joined(product, std::fma(a.low, b.high, rest));
}

AUTOFN_FN DoubleDouble fma(DoubleDouble a, DoubleDouble b, DoubleDouble c) { return a * b + c; }

AUTOFN_FN DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double q = a.high / b.high;
  double rest = std::fma(-q, b.high, a.high);
  rest += std::fma(-q, b.low, a.low);
  return joined(q, std::fabs(b.high) < INFINITY ? rest / b.high : 0.0);
}

AUTOFN_FN DoubleDouble sqrt(DoubleDouble a) {
  const double root = std::sqrt(a.high);
  const double rest = std::fma(-root, root, a.high) + a.low;
  return joined(root, root > 0.0 ? rest / (root + root) : 0.0);
}

// a 2^n, given 2^n.
AUTOFN_FN DoubleDouble times_power(DoubleDouble a, double power) {
  return {a.high * power, a.low * power};
}

AUTOFN_FN bool operator<(DoubleDouble a, DoubleDouble b) {
  return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low));
}
AUTOFN_FN bool operator<=(DoubleDouble a, DoubleDouble b) {
  return (a.high < b.high) | ((a.high == b.high) & (a.low <= b.low));
}
AUTOFN_FN bool operator>(DoubleDouble a, DoubleDouble b) { return b < a; }
AUTOFN_FN bool operator>=(DoubleDouble a, DoubleDouble b) { return b <= a; }
AUTOFN_FN bool operator==(DoubleDouble a, DoubleDouble b) {
  return (a.high == b.high) & (a.low == b.low);
}
AUTOFN_FN bool operator!=(DoubleDouble a, DoubleDouble b) { return !(a == b); }

AUTOFN_FN DoubleDouble choose(bool condition, DoubleDouble a, DoubleDouble b) {
  return {condition ? a.high : b.high, condition ? a.low : b.low};
}

AUTOFN_FN DoubleDouble fabs(DoubleDouble a) { return choose(a.high < 0.0, -a, a); }

// With the sign of b, as a has none.
AUTOFN_FN DoubleDouble signed_as(DoubleDouble a, DoubleDouble b) {
  return times_power(a, std::copysign(1.0, b.high));
}

// NaN if either is NaN, as maximum and minimum.
AUTOFN_FN DoubleDouble greater(DoubleDouble a, DoubleDouble b) {
  return choose((a > b) | (a.high != a.high), a, b);
}
AUTOFN_FN DoubleDouble smaller(DoubleDouble a, DoubleDouble b) {
  return choose((a < b) | (a.high != a.high), a, b);
}

AUTOFN_FN DoubleDouble clamped(DoubleDouble x, DoubleDouble low, DoubleDouble high) {
  return choose(x > high, high, choose(x < low, smaller(low, high), x));
}

AUTOFN_FN DoubleDouble floor(DoubleDouble a) {
  const double whole = std::floor(a.high);
  return joined(whole, whole == a.high ? std::floor(a.low) : 0.0);
}
