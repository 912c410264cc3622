// needs: cos_near, sin_half_turns
// cos(x), whatever the size of x: cos_near, and above 2^17 a reduction in double, most of the
// cost. At most 1.20 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float cos(float x) {
#ifdef __CUDACC__
  // No loop to vectorise: a branch.
  if (std::fabs(x) <= 0x1p+17f) return cos_near(x);
  return sin_half_turns(x, 0.5);
#else
  const float ordinary = cos_near(x);
  const float large = sin_half_turns(x, 0.5);
  return std::fabs(x) <= 0x1p+17f ? ordinary : large;
#endif
}

AUTOFN_FN double cos(double x) { return std::cos(x); }

// cos(x + rest), what x lost in rounding.
AUTOFN_FN float cos(float x, float rest) {
#ifdef __CUDACC__
  if (std::fabs(x) <= 0x1p+17f) return cos_near(x, rest);
  return sin_half_turns(x, rest, 0.5);
#else
  const float ordinary = cos_near(x, rest);
  const float large = sin_half_turns(x, rest, 0.5);
  return std::fabs(x) <= 0x1p+17f ? ordinary : large;
#endif
}

AUTOFN_FN double cos(double x, double rest) {
  return std::cos(x) * std::cos(rest) - std::sin(x) * std::sin(rest);
}

// The same, or a first try that costs a quarter of it: NaN for an x beyond 2^17. In double quickly,
// NaN there too.
template <Way kWay, typename T> AUTOFN_FN T cos(T x) {
  if constexpr (kWay == kTried) {
    return std::fabs(x) <= T(0x1p+17f) ? cos_near(x) : T(NAN);
  } else if constexpr (kWay == kQuick && sizeof(T) == 8) {
    return quick_cos(x);
  } else {
    return autofn::cos(x);
  }
}

template <Way kWay, typename T> AUTOFN_FN T cos(T x, T rest) {
  if constexpr (kWay == kTried) {
    return std::fabs(x) <= T(0x1p+17f) ? cos_near(x, rest) : T(NAN);
  } else if constexpr (kWay == kQuick && sizeof(T) == 8) {
    return quick_cos(x, rest);
  } else {
    return autofn::cos(x, rest);
  }
}
