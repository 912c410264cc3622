// sin(x + rest) for |x| <= 2^17 and a rest that is small beside x; NaN for inf and NaN, not even
// near beyond. r = x + rest - n pi / 2 in three steps, n = round(2 x / pi), and a polynomial for
// sin(r) or cos(r). At most 1.20 ULP over every such float32 (benchmarks/primitives.md).
AUTOFN_FN float sin_near(float x, float rest = -0.0f) {
  // Odd t: the other polynomial; the second bit: the sign.
  const float t = std::fma(x, 0x1.45f306p-1f, 0x1.8p+23f);
  const float n = t - 0x1.8p+23f;
  // x - n pi / 2 as r + l: the first step is exact, what the next ones round goes to l.
  const float h = std::fma(n, -0x1.921fb6p+0f, x);
  const float m = std::fma(n, 0x1.777a5cp-25f, rest);
  const float r = h + m;
  const float l =
    (m - (r - h)) +
    (std::fma(n, 0x1.ee59dap-50f, std::fma(n, 0x1.777a5cp-25f, -m)) + rest);
  const float z = r * r;
  float s = -0x1.99280ep-13f;
  s = std::fma(s, z, 0x1.1106ep-7f);
  s = std::fma(s, z, -0x1.555544p-3f);
  s = std::fma(s * z, r, l) + r;
  float c = 0x1.9b0f2ap-16f;
  c = std::fma(c, z, -0x1.6c110ap-10f);
  c = std::fma(c, z, 0x1.555554p-5f);
  c = std::fma(c, z, -0.5f);
  c = 1.0f + std::fma(c, z, -(r * l));
  const float p = (bits(t) & 1) != 0 ? c : s;
  return x == 0.0f ? x + rest : from_bits(bits(p) ^ ((bits(t) & 2) << 30));
}

AUTOFN_FN double sin_near(double x) { return std::sin(x); }

AUTOFN_FN double sin_near(double x, double rest) {
  return std::fma(std::cos(x), rest, std::sin(x));
}
