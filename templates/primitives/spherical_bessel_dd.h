// needs: sin_dd
// j_N(x), N >= 1: a series near 0, else upward recurrence.
template <int N, int K> AUTOFN_FN DoubleDouble bessel_series_dd(DoubleDouble z) {
  if constexpr (K > 20 + N) {
    return 1.0;
  } else {
    const DoubleDouble rest = bessel_series_dd<N, K + 1>(z);
    const DoubleDouble part = DoubleDouble(1.0) / DoubleDouble(2 * K * (2 * N + 2 * K + 1));
    return DoubleDouble(1.0) - z * (rest * part);
  }
}

// v (y / 3) (y / 5) ... (y / (2 N + 1))
template <int N> AUTOFN_FN DoubleDouble times_power_dd(DoubleDouble v, DoubleDouble y) {
  if constexpr (N == 0) {
    return v;
  } else {
    const DoubleDouble part = DoubleDouble(1.0) / DoubleDouble(2 * N + 1);
    return times_power_dd<N - 1>(v, y) * (y * part);
  }
}

// j_N from j_(K - 1) and j_K.
template <int N, int K>
AUTOFN_FN DoubleDouble bessel_upward_dd(DoubleDouble below, DoubleDouble at, DoubleDouble z) {
  if constexpr (K == N) {
    return at;
  } else {
    return bessel_upward_dd<N, K + 1>(at, at * DoubleDouble(2 * K + 1) / z - below, z);
  }
}

// Given sin(x) and cos(x), which are not looked at where x is infinite.
template <int N>
AUTOFN_FN DoubleDouble spherical_bessel_of_dd(DoubleDouble x, DoubleDouble s, DoubleDouble c) {
  const bool near = std::fabs(x.high) < N + 1, far = std::fabs(x.high) == INFINITY;
  const DoubleDouble y = choose(near, x, 1.0), z = choose(near | far, 1.0, x);
  const DoubleDouble series = times_power_dd<N>(bessel_series_dd<N, 1>(y * y), y);
  const DoubleDouble below = s / z;
  const DoubleDouble at = bessel_upward_dd<N, 1>(below, (below - c) / z, z);
  return choose(near, series, choose(far, 0.0, choose(x.high == x.high, at, x)));
}

template <int N> AUTOFN_FN DoubleDouble spherical_bessel_dd(DoubleDouble x) {
  return spherical_bessel_of_dd<N>(x, sin_dd(x), cos_dd(x));
}
