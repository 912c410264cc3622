// needs: sin_near
// gives: cospi, over
// sin(pi x / y) and cos(pi x / y), y perhaps with what x lost in rounding: x less a whole number of
// y is exact, so roots are, and digits are right however large x is.
template <typename T> struct Turned {
  T left, rest;  // x less n y, and what x lost, less a number of y that n has in it
  decltype(bits(T())) whole;  // its last bit says whether n is odd
};

// x / y; a first try by the inverse, which is one for all x where y is, and what that is off by.
template <Way kWay, typename T> AUTOFN_FN T over(T x, T y) {
  if constexpr (kWay == kTried || (kWay == kQuick && sizeof(T) == sizeof(double))) {
    const T inverse = T(1) / y, found = x * inverse;
    return std::fma(std::fma(-found, y, x), inverse, found);
  } else {
    return x / y;
  }
}

// A first try takes numbers up to 2^19, in double 2^48: beyond that NaN, or the C library's
// remainder.
template <Way kWay, typename T> AUTOFN_FN Turned<T> half_turns(T x, T y, T rest) {
  constexpr bool kIsDouble = sizeof(T) == sizeof(double);
  constexpr T kShift = kIsDouble ? T(0x1.8p+52) : T(0x1.8p+23);
  // By the inverse, which is one for all x where y is: a number next to the nearest does.
  const T turns = x * (T(1) / y), shifted = turns + kShift;
  const T left = std::fma(kShift - shifted, y, x);
  const bool near = std::fabs(turns) <= (kIsDouble ? T(0x1p+48) : T(0x1p+19));
  if constexpr (kWay == kTried || (kWay == kQuick && kIsDouble)) {
    return {near ? left : T(NAN), rest, bits(shifted)};
  } else {
    if (near) return {left, rest, bits(shifted)};
    int n, more, last;
    T all;
    if constexpr (kIsDouble) {
      all = ::remquo(x, y, &n) + ::remquo(rest, y, &more);
      all = ::remquo(all, y, &last);
    } else {
      all = ::remquof(x, y, &n) + ::remquof(rest, y, &more);
      all = ::remquof(all, y, &last);
    }
    return {all, T(0), decltype(bits(x))(n + more + last)};
  }
}

// sin(pi t) for |t| <= 0.57, its sign turned by an odd number: pi t in two parts, and an odd
// polynomial of degree 11; in double as sin has it.
template <Way kWay> AUTOFN_FN float sine_of_half_turns(float t, std::uint32_t whole) {
  const float u = 0x1.921fb6p+1f * t, z = t * t;
  const float low = std::fma(t, -0x1.777a5cp-24f, std::fma(t, 0x1.921fb6p+1f, -u));
  float p = -0x1.c9b76p-8f;
  p = std::fma(p, z, 0x1.5000b8p-4f);
  p = std::fma(p, z, -0x1.32d0fep-1f);
  p = std::fma(p, z, 0x1.466bc2p+1f);
  p = std::fma(p, z, -0x1.4abbcep+2f);
  return from_bits(bits(u + std::fma(t * z, p, low)) ^ (whole << 31));
}

template <Way kWay, typename T> AUTOFN_FN T sine_of_half_turns(T t, std::uint64_t whole) {
  const T u = 0x1.921fb54442d18p+1 * t;
  T found;
  if constexpr (kWay == kQuick) {
    found = quick_sine(u, T(-0.0), 0);
  } else {
    found = sin_near(u, std::fma(t, 0x1.1a62633145c07p-53, std::fma(t, 0x1.921fb54442d18p+1, -u)));
  }
  return from_bits(bits(found) ^ (whole << 63));
}

template <Way kWay, typename T> AUTOFN_FN T sinpi(T x, T y, T rest = T(-0.0)) {
  const Turned<T> at = half_turns<kWay>(x, y, rest);
  return sine_of_half_turns<kWay>(over<kWay>(at.left + at.rest, y), at.whole);
}

// By the distance from the root.
template <Way kWay, typename T> AUTOFN_FN T cospi(T x, T y, T rest = T(-0.0)) {
  const Turned<T> at = half_turns<kWay>(x, y, rest);
  const T size = std::fabs(y), more = at.left < T(0) ? -at.rest : at.rest;
  const T distance = (T(0.5) * size - std::fabs(at.left)) - more;
  return sine_of_half_turns<kWay>(over<kWay>(distance, size), at.whole);
}
