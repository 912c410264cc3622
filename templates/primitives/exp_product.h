// needs: exp
// exp(a * b), the product's rounding made up for: it would cost as many roundings as the product
// is large. About 1 ULP more than exp.
template <typename T> AUTOFN_FN T exp_product(T a, T b) {
  const T p = a * b;
  const T e = autofn::exp(p);
  const T rest = std::fma(a, b, -p);
  // Not where the product overflows: its rest is NaN.
  return std::fma(e, std::fabs(p) < T(1000) ? rest : T(0), e);
}
