// pow(x, y): 2^(y log2 |x|) in double, the logarithm by a polynomial of degree 13 to 2^-35, rounded
// once at the end; special cases as in C99. At most 0.60 ULP over 2 * 10^8 pairs
// (benchmarks/primitives.md). A third and a fourth argument are what x and y lost in rounding.

// A rest, where it is one: what has overflowed lost NaN.
template <typename T> AUTOFN_FN T rest_of(T x, T rest) {
  return std::fabs(rest) < std::fabs(x) ? rest : T(0);
}

// The power z of x and y with what these lost.
template <typename T> AUTOFN_FN T pow_with_rests(T z, T x, T y, T x_rest, T y_rest) {
  const T more = y * rest_of(T(1), x_rest / x) + rest_of(y, y_rest) * std::log(std::fabs(x));
  const T w = z * std::expm1(more);
  return std::fabs(w) < T(INFINITY) ? z + w : z;
}

template <typename... R> AUTOFN_FN float pow(float x, float y, R... rest) {
#ifdef __CUDACC__
  if constexpr (sizeof...(R) == 0) return ::powf(x, y);
  else return pow_with_rests(::powf(x, y), x, y, rest...);
#else
  const float a = std::fabs(x);
  // |x| = 2^e (1 + f), 1 + f in [3/4, 3/2); e is infinite or NaN where the logarithm is.
  const float scale = a < 0x1p-126f ? 0x1p+23f : 1.0f;
  const std::uint32_t i = bits(a * scale) - bits(scale) + 0x00400000;
  float e = static_cast<float>(static_cast<std::int32_t>(i) >> 23);
  e = a < INFINITY ? e : a;
  e = bits(a) == 0 ? -INFINITY : e;
  const double f = static_cast<double>(from_bits((i & 0x007fffff) + 0x3f400000) - 1.0f);
  double l = 0x1.37463524f0e98p-5;
  l = std::fma(l, f, -0x1.a20a08c51991ap-4);
  l = std::fma(l, f, 0x1.1c47fbaef7471p-3);
  l = std::fma(l, f, -0x1.3195f9b31eb7fp-3);
  l = std::fma(l, f, 0x1.48b524e703757p-3);
  l = std::fma(l, f, -0x1.70a5665825ea5p-3);
  l = std::fma(l, f, 0x1.a60122a7970c4p-3);
  l = std::fma(l, f, -0x1.ec757aa3cd8a9p-3);
  l = std::fma(l, f, 0x1.2777247b579c7p-2);
  l = std::fma(l, f, -0x1.71546f1fea6a3p-2);
  l = std::fma(l, f, 0x1.ec709ccd0097cp-2);
  l = std::fma(l, f, -0x1.715476561086ep-1);
  l = std::fma(l, f, 0x1.71547652d0193p+0);
  // Finite y, so that (+-1)^inf is 1: 2^64 decides all else.
  const float b = std::fabs(y);
  const float c = b > 0x1p+64f ? from_bits(0x5f800000 | (bits(y) & 0x80000000u)) : y;
  double p = std::fma(l, f, static_cast<double>(e)), by = static_cast<double>(c);
  bool as_it_is = true;
  if constexpr (sizeof...(R) == 2) {
    const float rests[] = {rest...};
    const float x_rest = rest_of(1.0f, rests[0] / x);
    const float y_rest = b > 0x1p+64f ? 0.0f : rest_of(y, rests[1]);
    p += static_cast<double>(x_rest) * 0x1.71547652b82fep+0;
    by += static_cast<double>(y_rest);
    as_it_is = (x_rest == 0.0f) & (y_rest == 0.0f);
  }
  p *= by;
  p = p > 200.0 ? 200.0 : p;
  p = p < -200.0 ? -200.0 : p;
  const double t = p + 0x1.8p+52;
  const double r = p - (t - 0x1.8p+52);
  double q = 0x1.41d314522dccdp-13;
  q = std::fma(q, r, 0x1.5f4597ea91a5dp-10);
  q = std::fma(q, r, 0x1.3b2dbc5dfdaaep-7);
  q = std::fma(q, r, 0x1.c6aed45fb1dfbp-5);
  q = std::fma(q, r, 0x1.ebfbdadb21b7dp-3);
  q = std::fma(q, r, 0x1.62e430c82aeb6p-1);
  q = std::fma(q, r, 0x1.0000000262468p+0);
  float z = static_cast<float>(from_bits(bits(q) + (bits(t) << 52)));
  // From 2^24 on every y is an even number; the least of the bits, as compilers move a cast into
  // the branches of a choice between numbers.
  const float d = from_bits(bits(b) < 0x4b800000u ? bits(b) : 0x4b800000u);
  const std::int32_t k = static_cast<std::int32_t>(d);
  const std::uint32_t whole = (static_cast<float>(k) == d) & (by == static_cast<double>(c)) ? 1 : 0;
  const std::uint32_t odd = static_cast<std::uint32_t>(k) & whole;
  z = from_bits(bits(z) ^ ((odd << 31) & bits(x)));
  // A power of a negative number that is no whole one: NaN.
  const bool nan = (x < 0.0f) & (a < INFINITY) & (whole == 0);
  z = nan ? NAN : z;
  z = b <= INFINITY ? z : y;
  const bool one = ((x == 1.0f) & as_it_is) | (y == 0.0f);
  return one ? 1.0f : z;
#endif
}

template <typename... R> AUTOFN_FN double pow(double x, double y, R... rest) {
  if constexpr (sizeof...(R) == 0) return std::pow(x, y);
  else return pow_with_rests(std::pow(x, y), x, y, rest...);
}
