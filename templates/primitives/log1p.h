// needs: quick_log
// log1p(x): 1 + x = 2^e (1 + f) with 1 + f in about [3/4, 3/2), without the rounding of 1 + x;
// f + f^2 q(f) with q of degree 8, and e ln 2 in two parts. At most 0.95 ULP over every float32
// (benchmarks/primitives.md).
AUTOFN_FN float log1p(float x) {
#ifdef __CUDACC__
  return ::log1pf(x);
#else
  const float u = x + 1.0f;
  const std::uint32_t i = (bits(u) - 0x3f400000) & 0xff800000u;
  // 2^-e x + (2^-e - 1), exact; for the second term 2^(2 - e), which is never subnormal.
  const float f = from_bits(bits(x) - i) + std::fma(0.25f, from_bits(0x40800000 - i), -1.0f);
  const float e = static_cast<float>(static_cast<std::int32_t>(i) >> 23);
  float p = -0x1.714d46p-5f;
  p = std::fma(p, f, 0x1.ac9a8cp-4f);
  p = std::fma(p, f, -0x1.0d8e8ap-3f);
  p = std::fma(p, f, 0x1.288612p-3f);
  p = std::fma(p, f, -0x1.54f032p-3f);
  p = std::fma(p, f, 0x1.9969bep-3f);
  p = std::fma(p, f, -0x1.00003ep-2f);
  p = std::fma(p, f, 0x1.5555a2p-2f);
  p = std::fma(p, f, -0.5f);
  // e times the first part of ln 2 is exact, and so is what s = e ln 2 + f lost.
  const float s = std::fma(e, 0x1.62e4p-1f, f);
  const float lost = f + std::fma(e, 0x1.62e4p-1f, -s);
  float r = s + std::fma(p, f * f, std::fma(e, 0x1.7f7d1cp-20f, lost));
  // Tiny x (and so the sign of 0), inf and NaN.
  const std::uint32_t a = (bits(x) & 0x7fffffffu) - 0x2f800000u;
  r = a < 0x7f800000u - 0x2f800000u ? r : x;
  r = u == 0.0f ? -INFINITY : r;
  return bits(u) >= 0x80000000u ? NAN : r;
#endif
}

AUTOFN_FN double log1p(double x) { return std::log1p(x); }

#ifdef __CUDACC__
AUTOFN_FN float quick_log1p(float x) { return quick_log(1.0f + x, x); }
#endif

// Or quickly.
template <Way kWay, typename T> AUTOFN_FN T log1p(T x) {
  if constexpr (kWay == kQuick) {
    return quick_log1p(x);
  } else {
    return autofn::log1p(x);
  }
}
