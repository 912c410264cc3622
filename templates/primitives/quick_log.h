// needs: hardware
#ifdef __CUDACC__
// log(u), f = u - 1, to 2^-19 for 16-bit types: near 1 a polynomial of degree 7.
AUTOFN_FN float quick_log(float u, float f) {
  float p = 0x1.474e7ap-3f;
  p = std::fma(p, f, -0x1.733f86p-3f);
  p = std::fma(p, f, 0x1.97fd42p-3f);
  p = std::fma(p, f, -0x1.ff0b6ap-3f);
  p = std::fma(p, f, 0x1.55587ap-2f);
  p = std::fma(p, f, -0x1.00007cp-1f);
  p = std::fma(p, f, 0x1.fffffep-1f);
  return std::fabs(f) < 0.25f ? p * f : 0x1.62e43p-1f * hardware_log2(u);
}
#endif
