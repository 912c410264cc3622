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

// In double likewise, at most 1.2 ULP.
AUTOFN_FN double sin_near(double x, double rest = -0.0) {
  const double t = std::fma(x, 0x1.45f306dc9c883p-1, 0x1.8p+52);
  const double n = t - 0x1.8p+52;
  const double h = std::fma(n, -0x1.921fb54442d18p+0, x);
  const double m = std::fma(n, -0x1.1a62633145c07p-54, rest);
  const double r = h + m;
  const double l =
    (m - (r - h)) +
    (std::fma(n, 0x1.f1976b7ed8fbcp-110, std::fma(n, -0x1.1a62633145c07p-54, -m)) + rest);
  const double z = r * r;
  double s = 0x1.5e0af186af739p-33;
  s = std::fma(s, z, -0x1.ae600a926c89ap-26);
  s = std::fma(s, z, 0x1.71de37961e4c6p-19);
  s = std::fma(s, z, -0x1.a01a019e8357dp-13);
  s = std::fma(s, z, 0x1.1111111110bb1p-7);
  s = std::fma(s, z, -0x1.5555555555555p-3);
  s = std::fma(s * z, r, l) + r;
  double c = -0x1.907d7aebd5e3dp-37;
  c = std::fma(c, z, 0x1.1eeb68b109173p-29);
  c = std::fma(c, z, -0x1.27e4fa17a41b4p-22);
  c = std::fma(c, z, 0x1.a01a019f4e867p-16);
  c = std::fma(c, z, -0x1.6c16c16c16966p-10);
  c = std::fma(c, z, 0x1.5555555555555p-5);
  c = std::fma(c, z, -0.5);
  c = 1.0 + std::fma(c, z, -(r * l));
  const double p = (bits(t) & 1) != 0 ? c : s;
  return x == 0.0 ? x + rest : from_bits(bits(p) ^ ((bits(t) & 2) << 62));
}
