// tanh(x): an odd polynomial below 1, else 1 - 2 / (exp(2 |x|) + 1), with the sum in the
// denominator as 2^n (exp(r) - 1) + (2^n + 1). At most 0.95 ULP over every float32
// (benchmarks/primitives.md).
AUTOFN_FN float tanh(float x) {
#ifdef __CUDACC__
  return ::tanhf(x);
#else
  const float y = std::fabs(x);
  // 1.5 * 2^23 + 127
  const float t = std::fma(y, 0x1.715476p+1f, 0x1.8000fep+23f);
  const float n = t - 0x1.8000fep+23f;
  float r = std::fma(y, 2.0f, n * -0x1.62e4p-1f);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6bedeap-10f;
  p = std::fma(p, r, 0x1.122872p-7f);
  p = std::fma(p, r, 0x1.5556c2p-5f);
  p = std::fma(p, r, 0x1.5554bp-3f);
  p = std::fma(p, r, 0x1.fffffep-2f);
  p = std::fma(p, r * r, r);
  const float s = power_of_two(t);
  p = 1.0f - 2.0f / std::fma(p, s, s + 1.0f);
  // 1 from here on; the scale above is right up to 44.
  p = y > 10.0f ? 1.0f : p;
  const float z = x * x;
  float q = -0x1.77dd58p-12f;
  q = std::fma(q, z, 0x1.2da514p-9f);
  q = std::fma(q, z, -0x1.0460ccp-7f);
  q = std::fma(q, z, 0x1.600994p-6f);
  q = std::fma(q, z, -0x1.b96222p-5f);
  q = std::fma(q, z, 0x1.110be2p-3f);
  q = std::fma(q, z, -0x1.55553cp-2f);
  q = std::fma(q * z, y, y);
  // NaN too.
  p = y >= 1.0f ? p : q;
  return from_bits(bits(p) | (bits(x) & 0x80000000u));
#endif
}

AUTOFN_FN double tanh(double x) { return std::tanh(x); }

// Or quickly, in double.
template <Way kWay, typename T> AUTOFN_FN T tanh(T x) {
  if constexpr (kWay == kQuick && sizeof(T) == 8) {
    return quick_tanh(x);
  } else {
    return autofn::tanh(x);
  }
}
