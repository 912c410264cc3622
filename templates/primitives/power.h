// needs: double_double
// a**N, N > 0, by squaring.
template <int N> AUTOFN_FN DoubleDouble power(DoubleDouble a) {
  if constexpr (N == 1) {
    return a;
  } else {
    const DoubleDouble half = power<N / 2>(a);
    if constexpr (N % 2) return half * half * a;
    return half * half;
  }
}
