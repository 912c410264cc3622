// needs: hardware
// gives: quotient
// 1 / d for d in [1, 4]; on a GPU without division's slow path, by Newton's steps.
template <Way kWay, typename T> AUTOFN_FN T reciprocal(T d) {
  if constexpr (kCuda) {
    T r = hardware_reciprocal(d);
    if constexpr (kWay != kQuick || sizeof(T) == 8) r = std::fma(r, std::fma(-d, r, T(1)), r);
    if constexpr (kWay != kQuick && sizeof(T) == 8) r = std::fma(r, std::fma(-d, r, T(1)), r);
    return r;
  } else {
    return T(1) / d;
  }
}

// v / d likewise.
template <Way kWay, typename T> AUTOFN_FN T quotient(T v, T d) {
  return kCuda ? v * reciprocal<kWay>(d) : v / d;
}
