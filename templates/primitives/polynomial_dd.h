// needs: double_double
// c0 t^n + ... + cn.
AUTOFN_FN DoubleDouble polynomial_dd(DoubleDouble, DoubleDouble v) { return v; }
template <typename... C>
AUTOFN_FN DoubleDouble polynomial_dd(DoubleDouble t, DoubleDouble v, DoubleDouble c, C... rest) {
  return polynomial_dd(t, v * t + c, rest...);
}
