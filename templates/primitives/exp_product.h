// needs: exp
// exp(a * b), the product's rounding made up for: it would cost as many roundings as the product
// is large.
template <typename T> AUTOFN_FN T exp_product(T a, T b) {
  const T p = a * b;
  const T e = autofn::exp(p);
  const T rest = std::fma(a, b, -p);
  // Not where the product overflows: its rest is NaN.
  return std::fma(e, std::fabs(p) < T(1000) ? rest : T(0), e);
}

#ifndef __CUDACC__
// As exp, which reduces the product as it is, not as it rounds.
inline float exp_product(float a, float b) {
  const float x = a * b;
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(a, b, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  return exp_reduced(x, t, r);
}
#endif

template <Way kWay, typename T> AUTOFN_FN T exp_product(T a, T b) {
  if constexpr (kWay == kFull) {
    return autofn::exp_product(a, b);
  } else {
    return autofn::exp<kWay>(a * b, std::fma(a, b, -(a * b)));
  }
}
