// needs: exp
// gives: times, times_decay, value
// exp(rest - y) for y >= 0, in a form that is multiplied by v before it may become subnormal:
// times(v, decay(y)) rounds once more at most.
// p 2^n, where the low bits of t hold n + 254; in double the value itself.
template <typename T> struct Decay { T p, t; };

AUTOFN_FN Decay<float> decay(float y, float rest = -0.0f) {
  const float x = y > 174.0f ? -174.0f : -y;
  const float t = std::fma(x, 0x1.715476p+0f, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r) + (y > 174.0f ? -0.0f : rest);
  return {std::fma(exp_quotient(r), r, 1.0f), t};
}

AUTOFN_FN Decay<double> decay(double y, double rest = -0.0) {
  return {autofn::exp(-y, rest), 0.0};
}

AUTOFN_FN float value(const Decay<float>& e) { return scaled(e.p, e.t); }
AUTOFN_FN double value(const Decay<double>& e) { return e.p; }
AUTOFN_FN float times(float v, const Decay<float>& e) { return scaled(v * e.p, e.t); }
AUTOFN_FN double times(double v, const Decay<double>& e) { return v * e.p; }

// A first try: NaN where y is large.
template <typename T> struct NearDecay { T value; };

template <typename T> AUTOFN_FN T value(const NearDecay<T>& e) { return e.value; }
template <typename T> AUTOFN_FN T times(T v, const NearDecay<T>& e) { return v * e.value; }

// For 16-bit types.
template <typename T> struct RootDecay { T root; };

template <typename T> AUTOFN_FN T value(const RootDecay<T>& e) { return e.root * e.root; }
template <typename T> AUTOFN_FN T times(T v, const RootDecay<T>& e) { return v * e.root * e.root; }

template <Way kWay, typename T, typename... R> AUTOFN_FN auto decay(T y, R... rest) {
  if constexpr (kWay == kTried) {
    return NearDecay<T>{exp_near(-y, rest...)};
  } else if constexpr (kWay == kQuick && sizeof(T) == 4) {
    return RootDecay<T>{exp_root(-y)};
  } else if constexpr (kWay == kQuick) {
    return Decay<T>{quick_decay(y), T(0)};
  } else {
    return autofn::decay(y, rest...);
  }
}

// v exp(rest - y), 0 where y is large, whatever v is.
template <Way kWay, typename T, typename... R> AUTOFN_FN T times_decay(T v, T y, R... rest) {
  const T product = autofn::times(v, autofn::decay<kWay>(y, rest...));
  if constexpr (kWay == kTried) {
    return product;
  } else {
    return y > (sizeof(T) == 4 ? T(174) : T(1500)) ? T(0) : product;
  }
}
