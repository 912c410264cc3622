// needs: in_double, exp, expm1, log, log1p
// gives: log_normal_mass, normal_mass_upper, normal_mass_lower, normal_mass_mean
// The mass of the standard normal distribution between v and u, normcdf(u) - normcdf(v), of which
// the difference may cancel, or vanish; d is u - v, which counts where that is small.

// Mills' ratio, normcdf(-t) / density(t), for t >= 0.
AUTOFN_FN double mills(double t) {
  const double w = t < 0x1p+100 ? (t - 5.0) / (t + 5.0) : 1.0;
  double g = -0x1.e308ac7d6658ap-31;
  g = std::fma(g, w, -0x1.db93997f9e0d0p-31);
  g = std::fma(g, w, 0x1.595d3b105a1e4p-27);
  g = std::fma(g, w, 0x1.7537bae953be3p-27);
  g = std::fma(g, w, -0x1.2ce9c87aa7b0ep-24);
  g = std::fma(g, w, -0x1.525867ebeb007p-24);
  g = std::fma(g, w, 0x1.db381462afe23p-22);
  g = std::fma(g, w, 0x1.befe89b5e8b79p-22);
  g = std::fma(g, w, -0x1.8ee9c9114d426p-19);
  g = std::fma(g, w, -0x1.124da7bf61da3p-20);
  g = std::fma(g, w, 0x1.624c152aeb6bdp-16);
  g = std::fma(g, w, -0x1.1476b602a1990p-16);
  g = std::fma(g, w, -0x1.1746cdfb3b6d2p-13);
  g = std::fma(g, w, 0x1.8fd4f42de0d1ep-12);
  g = std::fma(g, w, 0x1.89e4026510fc5p-13);
  g = std::fma(g, w, -0x1.014d6f740232bp-8);
  g = std::fma(g, w, 0x1.b600c74919d1fp-7);
  g = std::fma(g, w, -0x1.b6656d2435e1fp-6);
  g = std::fma(g, w, 0x1.07748fe8b4d2dp-5);
  g = std::fma(g, w, -0x1.964f92691d6e7p-8);
  g = std::fma(g, w, -0x1.38871c981d067p-4);
  g = std::fma(g, w, 0x1.c9387e0581e72p-3);
  g = std::fma(g, w, -0x1.a31b960eed528p-2);
  g = std::fma(g, w, 0x1.40d52aed03a00p+0);
  return g / (t + 1.5);
}

// exp(-(y + rest)); rest may be anything where that is 0.
template <typename T> AUTOFN_FN double mass_decay(double y, double rest) {
  const double e = sizeof(T) == 4 ? quick_decay(y) : autofn::exp(-y);
  return y < 800.0 ? std::fma(-e, rest, e) : e;
}

template <typename T> AUTOFN_FN double normal_density(double t) {
  const double y = 0.5 * t * t;
  return 0x1.9884533d43651p-2 * mass_decay<T>(y, std::fma(0.5 * t, t, -y));
}

// What a + b loses in rounding.
AUTOFN_FN double mass_rest(double a, double b) {
  const double s = a + b, t = s - a;
  return (a - (s - t)) + (b - t);
}

// The mean of exp(-m t - t^2 / 2) over |t| < h, h and m h at most 1/2: He_n(m) h^n / (n + 1)! of
// Hermite's polynomials, by their recurrence, for even n.
AUTOFN_FN double narrow_mean(double mh, double h) {
  const double square = h * h;
  double before = 1.0, at = 0.5 * mh, sum = 1.0;
  for (int n = 1; n < 20; ++n) {
    const double next = (mh * at - square * before * (double(n) / double(n + 1))) / double(n + 2);
    before = at;
    at = next;
    sum += n % 2 ? at : 0.0;
  }
  return sum;
}

// Seen from where both ends are above 0, or the nearer to it, `near`, is the lower: the mass is
// density(base) scale, or 1 - outside; and the densities at both ends over it.
struct NormalMass {
  double middle, base, scale, outside, fall, at_near, at_far;
  bool up, back, narrow;
};

template <typename T> AUTOFN_FN NormalMass normal_mass(double u, double v, double d) {
  NormalMass found;
  found.back = d < 0.0;
  const double high = found.back ? v : u, low = found.back ? u : v, width = std::fabs(d);
  const double twice = high + low, middle = 0.5 * std::fabs(twice), h = 0.5 * width;
  found.up = twice >= 0.0;
  found.middle = middle;
  const double near = found.up ? low : -high, far = found.up ? high : -low;
  found.narrow = width * (middle > 1.0 ? middle : 1.0) < 1.0;

  const double part = width * narrow_mean(middle * h, h);
  const double rise = sizeof(T) == 4 ? quick_exp(middle * h) : autofn::exp(middle * h);
  const double bend = mass_decay<T>(0.5 * h * h, 0.0) / part;

  // (far^2 - near^2) / 2, with what d lost if it is the rounded difference.
  const double lost = (high - low - width) + mass_rest(high, -low);
  const bool rounded = std::fabs(lost) < (sizeof(T) == 4 ? 0x1p-22 : 0x1p-51) * width;
  const double fall = width * middle, twice_rest = mass_rest(high, low);
  double rest = std::fma(width, middle, -fall) + (rounded ? lost * middle : 0.0);
  rest = std::fma(0.5 * width, found.up ? twice_rest : -twice_rest, rest);
  found.fall = fall;
  const double decay = mass_decay<T>(fall, rest);
  const double from_near = mills(std::fabs(near)), from_far = mills(std::fabs(far));
  const double within = from_near - decay * from_far;

  const double density_near = normal_density<T>(near);
  const double density_far = normal_density<T>(far);
  const double outside = density_near * from_near + density_far * from_far;

  const bool beside = near > 0.0;
  found.base = found.narrow ? middle : beside ? near : 0.0;
  found.scale = found.narrow ? part : beside ? within : 1.0;
  found.outside = !found.narrow & !beside ? outside : 0.0;
  const double wide_near = (beside ? 1.0 : density_near) / (beside ? within : 1.0 - outside);
  const double wide_far = (beside ? decay : density_far) / (beside ? within : 1.0 - outside);
  found.at_near = found.narrow ? rise * bend : wide_near;
  found.at_far = found.narrow ? bend / rise : wide_far;
  return found;
}

template <typename T> AUTOFN_FN T log_normal_mass(T u, T v, T d) {
  const NormalMass at = normal_mass<T>(u, v, d);
  const double scale = sizeof(T) == 4 ? quick_log(at.scale) : autofn::log(at.scale);
  const double outside = sizeof(T) == 4 ? quick_log1p(-at.outside) : autofn::log1p(-at.outside);
  const double beside = scale - 0.5 * at.base * at.base - 0x1.d67f1c864beb5p-1;
  const double found = at.narrow | (at.base > 0.0) ? beside : outside;
  return T(d >= 0.0 ? found : NAN);
}

template <typename T> AUTOFN_FN T normal_mass_upper(T u, T v, T d) {
  const NormalMass at = normal_mass<T>(u, v, d);
  const double size = at.up != at.back ? at.at_far : at.at_near;
  return T(at.back ? -size : size);
}

template <typename T> AUTOFN_FN T normal_mass_lower(T u, T v, T d) {
  const NormalMass at = normal_mass<T>(u, v, d);
  const double size = at.up != at.back ? at.at_near : at.at_far;
  return T(at.back ? -size : size);
}

template <typename T> AUTOFN_FN T normal_mass_mean(T u, T v, T d) {
  const NormalMass at = normal_mass<T>(u, v, d);
  // Of no width it is the middle.
  const double turns = at.fall == at.fall ? at.fall : 0.0;
  const double part = sizeof(T) == 4 ? -quick_expm1(-turns) : -autofn::expm1(-turns);
  const double wide = at.at_near * part;
  const double size = at.narrow & (turns < 0x1p-1000) ? at.middle : wide;
  return T(at.up ? size : -size);
}
