// cbrt(x) = m^(1/3) with the sign of x, m = |x|. r = m^(-1/3), about: its bits are a third of m's,
// negated; then a step of order 4. What m r^2 is wrong by is found without rounding. At most
// 0.501 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float cbrt(float x) {
#ifdef __CUDACC__
  return ::cbrtf(x);
#else
  // So large that what remains is not subnormal.
  const float size = std::fabs(x);
  const bool tiny = size < 0x1p-96f;
  const float m = tiny ? 0x1p+48f * size : size;
  const float third = 0x1.555556p-2f * static_cast<float>(static_cast<std::int32_t>(bits(m)));
  float r = from_bits(0x54a21d2au - static_cast<std::uint32_t>(static_cast<std::int32_t>(third)));
  const float c = std::fma(-(m * r) * r, r, 1.0f);
  // (1 - c)^(-1/3) = 1 + c/3 + 2/9 c^2 + 14/81 c^3 + ...
  float p = std::fma(0x1.61f9aep-3f, c, 0x1.c71c72p-3f);
  p = std::fma(p, c, 0x1.555556p-2f);
  r = std::fma(r * c, p, r);
  const float r2 = r * r;
  const float y = m * r2;
  const float y2 = y * y;
  const float rest = std::fma(-std::fma(y, y, -y2), y, std::fma(-y2, y, m));
  const float step = std::fma(0x1.c71c72p-3f, rest * (r2 * r), 0x1.555556p-2f);
  const float root = std::fma(rest * r2, step, y);
  const float scaled = tiny ? 0x1p-16f * root : root;
  return std::copysign(size > 0.0f && size < INFINITY ? scaled : size, x);
#endif
}

AUTOFN_FN double cbrt(double x) { return std::cbrt(x); }
