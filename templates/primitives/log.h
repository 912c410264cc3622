// needs: quick_log
// log(x): x = 2^e (1 + f) with 1 + f in [3/4, 3/2); f + f^2 q(f) with q of degree 8, and e ln 2.
// At most 0.95 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float log(float x) {
#ifdef __CUDACC__
  return ::logf(x);
#else
  // Subnormals become normal.
  const float scale = x < 0x1p-126f ? 0x1p+23f : 1.0f;
  const float y = x * scale;
  const std::uint32_t i = bits(y) - bits(scale) + 0x00400000;
  const float e = static_cast<float>(static_cast<std::int32_t>(i) >> 23);
  const float f = from_bits((i & 0x007fffff) + 0x3f400000) - 1.0f;
  float p = -0x1.714d46p-5f;
  p = std::fma(p, f, 0x1.ac9a8cp-4f);
  p = std::fma(p, f, -0x1.0d8e8ap-3f);
  p = std::fma(p, f, 0x1.288612p-3f);
  p = std::fma(p, f, -0x1.54f032p-3f);
  p = std::fma(p, f, 0x1.9969bep-3f);
  p = std::fma(p, f, -0x1.00003ep-2f);
  p = std::fma(p, f, 0x1.5555a2p-2f);
  p = std::fma(p, f, -0.5f);
  p = std::fma(p, f * f, f);
  float r = std::fma(e, 0x1.62e43p-1f, p);
  // Negative: NaN. The conditions are of different kinds, or compilers thread them into copies.
  const float z = from_bits(bits(x) | (x < 0.0f ? 0x7fc00000 : 0));
  r = bits(x) < 0x7f800000u ? r : z;
  return y == 0.0f ? -INFINITY : r;
#endif
}

AUTOFN_FN double log(double x) { return std::log(x); }

#ifdef __CUDACC__
// What is subnormal as its multiple by 2^24.
AUTOFN_FN float quick_log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float found = quick_log(tiny ? 0x1p+24f * x : x, x - 1.0f);
  return tiny ? found - 0x1.0a2b24p+4f : found;
}
#endif

// Or quickly.
template <Way kWay, typename T> AUTOFN_FN T log(T x) {
  if constexpr (kWay == kQuick) {
    return quick_log(x);
  } else {
    return autofn::log(x);
  }
}
