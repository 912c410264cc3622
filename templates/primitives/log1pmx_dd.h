// needs: log_dd
// 2 / K + 2 z / (K + 2) + ..., up to z^((45 - K) / 2).
template <int K> AUTOFN_FN DoubleDouble artanh_series_dd(DoubleDouble z) {
  const DoubleDouble part = DoubleDouble(2.0) / DoubleDouble(K);
  if constexpr (K == 45) {
    return part;
  } else {
    return artanh_series_dd<K + 2>(z) * z + part;
  }
}

// log(1 + x) - x: near 0 by the series of artanh.
AUTOFN_FN DoubleDouble log1pmx_dd(DoubleDouble x) {
  const DoubleDouble r = x / (x + 2.0), square = r * r, series = artanh_series_dd<3>(square);
  const DoubleDouble far = choose(x.high < INFINITY, log1p_dd(x) - x, -x);
  return choose(std::fabs(x.high) < 0.5, r * (square * series - x), far);
}
