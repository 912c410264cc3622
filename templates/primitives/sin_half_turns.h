// sin(pi (x / pi + shift)), shift 0 or 1/2, for sin and cos: x / pi less a whole number of half
// turns, exact but for the last of four parts of 1 / pi, then an odd polynomial of degree 9; all in
// double, whose products with 29 bits are exact. No primitive itself.
// The last bit of `whole` says whether that number is odd.
struct HalfTurns {
  double rest;
  std::uint64_t whole;
};

AUTOFN_FN HalfTurns half_turns(float x, double shift) {
  // Bits of 1 / pi that weigh 2 or more in the product with the last bit of a huge x make whole
  // turns: such x start 55 bits later.
  const bool huge = std::fabs(x) >= 0x1p+80f;
  const double a = huge ? -0x1.ac07b16p-58 : 0x1.45f306ep-2;
  const double b = huge ? 0x1.f47d4d4p-87 : -0x1.b1bbeacp-33;
  const double c = huge ? -0x1.11f924ep-116 : -0x1.603d8a8p-61;
  const double d = huge ? -0x1.6a66c3bc6fbep-145 : -0x1.70565911f924fp-92;
  const double y = x;
  // Adding 1.5 * 2^53 and taking it off rounds to even numbers, 1.5 * 2^52 to whole ones; what
  // remains of products too large for that is even already.
  double n = std::fma(y, a, 0x1.8p+53) - 0x1.8p+53;
  double r = std::fma(y, a, -n);
  r = std::fma(y, b, r);
  r = r - ((r + 0x1.8p+53) - 0x1.8p+53);
  r = r + shift;
  // Twice: what is left may be 2^-30 of what is rounded.
  const double t = std::fma(y, c, r) + 0x1.8p+52;
  r = std::fma(y, d, std::fma(y, c, r - (t - 0x1.8p+52)));
  return {r, bits(t)};
}

AUTOFN_FN float sin_pi(HalfTurns x) {
  const double z = x.rest * x.rest;
  double p = 0x1.3d4f9ba400098p-4;
  p = std::fma(p, z, -0x1.32474caa208c2p-1);
  p = std::fma(p, z, 0x1.46687dba43856p+1);
  p = std::fma(p, z, -0x1.4abbc04bc83bep+2);
  p = std::fma(p, z, 0x1.921fb51c82709p+1);
  // An odd number of half turns changes the sign.
  return static_cast<float>(from_bits(bits(x.rest * p) ^ (x.whole << 63)));
}

AUTOFN_FN float sin_half_turns(float x, double shift) { return sin_pi(half_turns(x, shift)); }

// The same of x + rest, both of any size.
AUTOFN_FN float sin_half_turns(float x, float rest, double shift) {
  const HalfTurns a = half_turns(x, shift), b = half_turns(rest, 0.0);
  const double r = a.rest + b.rest, t = r + 0x1.8p+52;
  return sin_pi({r - (t - 0x1.8p+52), a.whole ^ b.whole ^ bits(t)});
}
