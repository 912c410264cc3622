// needs: exp
// v exp(x) from r and t, as exp_reduced.
AUTOFN_FN float times_exp_reduced(float v, float x, float t, float r) {
  float p = scaled(v * std::fma(exp_quotient(r), r, 1.0f), t);
  p = x > 174.0f ? (v == 0.0f ? v : v * INFINITY) : p;
  return x < -174.0f ? 0.0f : p;
}

// v exp(x + rest): 0 where v is 0, however large x is, and rounded to a subnormal number once.
AUTOFN_FN float times_exp(float v, float x, float rest = -0.0f) {
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r) + rest;
  return times_exp_reduced(v, x, t, r);
}

AUTOFN_FN double times_exp(double v, double x, double rest = -0.0) {
  const double t = std::fma(x, 0x1.71547652b82fep+0, kDoubleShift);
  double p = scaled(v * exp_reduced(x, rest, t), t);
  p = x > 1416.0 ? v * 0x1p+1023 * 0x1p+1023 : p;
  return x < -1416.0 ? 0.0 : p;
}

#ifdef __CUDACC__
AUTOFN_FN float quick_times_exp(float v, float x) {
  const float root = exp_root(x);
  const float found = v == 0.0f && root == INFINITY ? v : v * root * root;
  return x < -200.0f ? 0.0f : found;
}
#endif

// Or a first try: NaN where x is large. Or quickly.
template <Way kWay, typename T, typename... R> AUTOFN_FN T times_exp(T v, T x, R... rest) {
  if constexpr (kWay == kTried) {
    return v * exp_near(x, rest...);
  } else if constexpr (kWay == kQuick) {
    return quick_times_exp(v, x);
  } else {
    return autofn::times_exp(v, x, rest...);
  }
}
