// needs: double_double
// cbrt: in double, and a step of Newton's.
AUTOFN_FN DoubleDouble cbrt_dd(DoubleDouble x) {
  const double root = std::cbrt(x.high);
  const DoubleDouble square = DoubleDouble(root) * root;
  const DoubleDouble off = (x - square * root) / (square * 3.0);
  const bool ordinary = (std::fabs(x.high) > 0x1p-900) & (std::fabs(x.high) < INFINITY);
  return choose(ordinary, off + root, root);
}
