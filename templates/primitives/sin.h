// needs: sin_near, sin_half_turns
// sin(x), whatever the size of x: sin_near, and above 2^17 a reduction in double, most of the
// cost. At most 1.20 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float sin(float x) {
#ifdef __CUDACC__
  // No loop to vectorise: a branch.
  if (std::fabs(x) <= 0x1p+17f) return sin_near(x);
  return sin_half_turns(x, 0.0);
#else
  const float ordinary = sin_near(x);
  const float large = sin_half_turns(x, 0.0);
  return std::fabs(x) <= 0x1p+17f ? ordinary : large;
#endif
}

AUTOFN_FN double sin(double x) { return std::sin(x); }

// sin(x + rest), what x lost in rounding.
AUTOFN_FN float sin(float x, float rest) {
#ifdef __CUDACC__
  if (std::fabs(x) <= 0x1p+17f) return sin_near(x, rest);
  return sin_half_turns(x, rest, 0.0);
#else
  const float ordinary = sin_near(x, rest);
  const float large = sin_half_turns(x, rest, 0.0);
  return std::fabs(x) <= 0x1p+17f ? ordinary : large;
#endif
}

AUTOFN_FN double sin(double x, double rest) {
  return std::sin(x) * std::cos(rest) + std::cos(x) * std::sin(rest);
}

// The same, or a first try that costs a quarter of it: NaN for an x beyond 2^17. In double quickly,
// NaN there too.
template <Way kWay, typename T> AUTOFN_FN T sin(T x) {
  if constexpr (kWay == kTried) {
    return std::fabs(x) <= T(0x1p+17f) ? sin_near(x) : T(NAN);
  } else if constexpr (kWay == kQuick && sizeof(T) == 8) {
    return quick_sin(x);
  } else {
    return autofn::sin(x);
  }
}

template <Way kWay, typename T> AUTOFN_FN T sin(T x, T rest) {
  if constexpr (kWay == kTried) {
    return std::fabs(x) <= T(0x1p+17f) ? sin_near(x, rest) : T(NAN);
  } else if constexpr (kWay == kQuick && sizeof(T) == 8) {
    return quick_sin(x, rest);
  } else {
    return autofn::sin(x, rest);
  }
}
