// needs: sin_near
// gives: cospi
// sin(pi x / y) and cos(pi x / y), y perhaps with what x lost in rounding: x less a whole number of
// y is exact, so roots are, and digits are right however large x is.
template <typename T> struct Turned {
  T left, rest;  // x less n y, and what x lost, less a number of y that n has in it
  bool odd;      // whether n is odd
};

// A first try takes numbers up to 2^21, in double 2^50: beyond that NaN, or the C library's
// remainder.
template <Way kWay, typename T> AUTOFN_FN Turned<T> half_turns(T x, T y, T rest) {
  constexpr bool kIsDouble = sizeof(T) == sizeof(double);
  constexpr T kShift = kIsDouble ? T(0x1.8p+52) : T(0x1.8p+23);
  // By the inverse, which is one for all x where y is: a number next to the nearest does.
  const T turns = x * (T(1) / y), shifted = turns + kShift;
  const T left = std::fma(kShift - shifted, y, x);
  const bool near = std::fabs(turns) <= (kIsDouble ? T(0x1p+50) : T(0x1p+21));
  const bool odd = (bits(shifted) & 1) != 0;
  if constexpr (kWay == kTried || (kWay == kQuick && kIsDouble)) {
    return {near ? left : T(NAN), rest, odd};
  } else {
    if (near) return {left, rest, odd};
    int whole, more;
    if constexpr (kIsDouble) {
      const T far = ::remquo(x, y, &whole), rest_far = ::remquo(rest, y, &more);
      return {far, rest_far, ((whole + more) & 1) != 0};
    } else {
      const T far = ::remquof(x, y, &whole), rest_far = ::remquof(rest, y, &more);
      return {far, rest_far, ((whole + more) & 1) != 0};
    }
  }
}

// sin(pi t) for |t| <= 2
template <Way kWay, typename T> AUTOFN_FN T sine_of_half_turns(T t) {
  constexpr bool kIsDouble = sizeof(T) == sizeof(double);
  constexpr T kPi = kIsDouble ? T(0x1.921fb54442d18p+1) : T(0x1.921fb6p+1);
  constexpr T kRest = kIsDouble ? T(0x1.1a62633145c07p-53) : T(-0x1.777a5cp-24);
  const T u = kPi * t;
  if constexpr (kWay == kQuick && kIsDouble) {
    return quick_sine(u, T(-0.0), 0);
  } else {
    return sin_near(u, std::fma(t, kRest, std::fma(t, kPi, -u)));
  }
}

template <Way kWay, typename T> AUTOFN_FN T sinpi(T x, T y, T rest = T(-0.0)) {
  const Turned<T> at = half_turns<kWay>(x, y, rest);
  const T found = sine_of_half_turns<kWay>((at.left + at.rest) / y);
  return at.odd ? -found : found;
}

// By the distance from the root.
template <Way kWay, typename T> AUTOFN_FN T cospi(T x, T y, T rest = T(-0.0)) {
  const Turned<T> at = half_turns<kWay>(x, y, rest);
  const T size = std::fabs(y), more = at.left < T(0) ? -at.rest : at.rest;
  const T distance = (T(0.5) * size - std::fabs(at.left)) - more;
  const T found = sine_of_half_turns<kWay>(distance / size);
  return at.odd ? -found : found;
}
