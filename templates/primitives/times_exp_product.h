// needs: times_exp, exp_product
// v exp(a * b), the product's rounding made up for.
template <typename T> AUTOFN_FN T times_exp_product(T v, T a, T b) {
  const T p = a * b;
  const T rest = std::fma(a, b, -p);
  return autofn::times_exp(v, p, std::fabs(p) < T(2000) ? rest : T(0));
}

#ifndef __CUDACC__
inline float times_exp_product(float v, float a, float b) {
  const float x = a * b;
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(a, b, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  return times_exp_reduced(v, x, t, r);
}
#endif

template <Way kWay, typename T> AUTOFN_FN T times_exp_product(T v, T a, T b) {
  if constexpr (kWay == kFull) {
    return autofn::times_exp_product(v, a, b);
  } else {
    return autofn::times_exp<kWay>(v, a * b, std::fma(a, b, -(a * b)));
  }
}
