// needs: hardware
// 1 / d for d in [1, 2]; on a GPU without division's slow path, by Newton's steps.
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
