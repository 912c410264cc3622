// needs: hardware
// erf(x): an odd polynomial below 1, else 1 - exp(-|x| q(|x|)) with q of degree 6. At most 1.00
// ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float erf(float x) {
#ifdef __CUDACC__
  return ::erff(x);
#else
  const float y = std::fabs(x);
  float g = 0x1.d47f22p-17f;
  g = std::fma(g, y, -0x1.6f9ee8p-12f);
  g = std::fma(g, y, 0x1.ec7fc8p-9f);
  g = std::fma(g, y, -0x1.896178p-6f);
  g = std::fma(g, y, 0x1.b459bp-4f);
  g = std::fma(g, y, 0x1.451ab8p-1f);
  g = std::fma(g, y, 0x1.20f21ep+0f);
  // 1.5 * 2^23 + 127
  const float t = std::fma(g * y, -0x1.715476p+0f, 0x1.8000fep+23f);
  const float n = t - 0x1.8000fep+23f;
  // From the product as it is, not as it rounds.
  float r = std::fma(g, -y, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6ac144p-10f;
  p = std::fma(p, r, 0x1.123da6p-7f);
  p = std::fma(p, r, 0x1.555858p-5f);
  p = std::fma(p, r, 0x1.55548cp-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, -power_of_two(t), 1.0f);
  p = y > 4.0f ? 1.0f : p;
  p = from_bits(bits(p) | (bits(x) & 0x80000000u));
  const float z = x * x;
  float q = 0x1.496a3cp-14f;
  q = std::fma(q, z, -0x1.a3f71p-11f);
  q = std::fma(q, z, 0x1.5405b6p-8f);
  q = std::fma(q, z, -0x1.b7f91p-6f);
  q = std::fma(q, z, 0x1.ce2cf8p-4f);
  q = std::fma(q, z, -0x1.81273ep-2f);
  q = std::fma(q, z, 0x1.06eba8p-3f);
  q = std::fma(q, x, x);
  // NaN too.
  return y >= 1.0f ? p : q;
#endif
}

AUTOFN_FN double erf(double x) { return std::erf(x); }

// Or on a GPU to 2^-20, for 16-bit types: an odd polynomial below 1, else 1 - 2^q(|x|), q of degree
// 5.
template <Way kWay, typename T> AUTOFN_FN T erf(T x) {
  if constexpr (kWay == kQuick && sizeof(T) == 4) {
    const T z = x * x, y = std::fabs(x);
    T p = -0x1.273fa0p-11f;
    p = std::fma(p, z, 0x1.4246d0p-8f);
    p = std::fma(p, z, -0x1.b5a35cp-6f);
    p = std::fma(p, z, 0x1.ce0942p-4f);
    p = std::fma(p, z, -0x1.812674p-2f);
    p = std::fma(p, z, 0x1.20dd74p+0f);
    T q = -0x1.dd0d0ap-10f;
    q = std::fma(q, y, 0x1.71fba2p-6f);
    q = std::fma(q, y, -0x1.0dd390p-3f);
    q = std::fma(q, y, -0x1.e076c4p-1f);
    q = std::fma(q, y, -0x1.9dcbe8p+0f);
    q = std::fma(q, y, -0x1.5893dep-9f);
    const T far = y > 4.0f ? 1.0f : 1.0f - hardware_exp2(q);
    // NaN too.
    return y >= 1.0f ? std::copysign(far, x) : p * x;
  } else {
    return autofn::erf(x);
  }
}
