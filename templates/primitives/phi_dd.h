// needs: exp_dd, power
template <int N> constexpr double kFactorial = N * kFactorial<N - 1>;
template <> constexpr double kFactorial<0> = 1.0;

// 1 + x / (K + 1) + x^2 / ((K + 1) (K + 2)) + ...: some terms, and further ones in double.
template <int K, int kTerms> AUTOFN_FN double phi_tail(double x) {
  if constexpr (kTerms == 0) {
    return 1.0;
  } else {
    return std::fma(phi_tail<K + 1, kTerms - 1>(x), x / (K + 1), 1.0);
  }
}

template <int K, int kTerms> AUTOFN_FN DoubleDouble phi_series_dd(DoubleDouble x) {
  if constexpr (kTerms == 0) {
    return phi_tail<K, 12>(x.high);
  } else {
    const DoubleDouble part = DoubleDouble(1.0) / DoubleDouble(K + 1);
    return x * (phi_series_dd<K + 1, kTerms - 1>(x) * part) + 1.0;
  }
}

// 1 / (N - 1)! + 1 / ((N - 2)! x) + ...
template <int N> AUTOFN_FN DoubleDouble taylor_inverse_dd(DoubleDouble inverse) {
  if constexpr (N == 1) {
    return 1.0;
  } else {
    const DoubleDouble last = DoubleDouble(1.0) / kFactorial<N - 1>;
    return taylor_inverse_dd<N - 1>(inverse) * inverse + last;
  }
}

// (exp(x) - its Taylor polynomial of degree N - 1) / x^N: a series near 0.
template <int N> AUTOFN_FN DoubleDouble phi_dd(DoubleDouble x) {
  const DoubleDouble inverse = DoubleDouble(1.0) / x, below = taylor_inverse_dd<N>(inverse);
  const DoubleDouble factor = power<N>(inverse);
  // exp(x) may overflow where this does not.
  DoubleDouble far = times_exp_dd(factor, x) - below * inverse;
  far = choose(x.high < 2000.0, far, x.high * INFINITY);
  const bool near = std::fabs(x.high) < 1.0 + 0.5 * N;
  const DoubleDouble y = choose(near, x, 1.0);
  return choose(near, phi_series_dd<N, 14>(y) / kFactorial<N>, far);
}
