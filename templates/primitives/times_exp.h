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
  const double half = std::exp(0.5 * x);
  const double product = v * half * half;
  const bool rounds = (std::fabs(x) < 1500.0) & (std::fabs(product) < INFINITY);
  const double found = rounds ? std::fma(product, rest, product) : product;
  return x < -1500.0 ? 0.0 : (v == 0.0) & (half == INFINITY) ? v : found;
}

// Or a first try: NaN where x is large. Or for 16-bit types.
template <Way kWay, typename T, typename... R> AUTOFN_FN T times_exp(T v, T x, R... rest) {
  if constexpr (kWay == kTried) {
    return v * exp_near(x, rest...);
  } else if constexpr (kWay == kQuick && sizeof(T) == 4) {
    const T root = exp_root(x);
    const T found = v == T(0) && root == T(INFINITY) ? v : v * root * root;
    return x < T(-200) ? T(0) : found;
  } else {
    return autofn::times_exp(v, x, rest...);
  }
}
