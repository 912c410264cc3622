// needs: exp_dd
// gives: erfc_dd, normcdf_dd, times_normcdf_dd
// erf, erfc and the normal distribution of double-double numbers, to about 2^-73.
// erfc(y) / exp(-y^2) for 0 <= y <= 27.5: w p(v), w = 1 / (y + 4), v from w between -1 and 1, p the
// Chebyshev interpolant of degree 31.
AUTOFN_FN DoubleDouble erfc_factor(DoubleDouble y) {
  const DoubleDouble w = DoubleDouble(1.0) / (y + 4.0);
  const DoubleDouble v = w * -0x1.253c8253c8254p+3 - -0x1.4a7904a7904a8p+0;
  double t = 0x1.728e3bb783afdp-48;
  t = std::fma(t, v.high, -0x1.ef2748efba91fp-49);
  t = std::fma(t, v.high, -0x1.71eed0e80fce2p-44);
  t = std::fma(t, v.high, 0x1.12cc370f66acbp-46);
  t = std::fma(t, v.high, 0x1.b6086e7bf4279p-41);
  t = std::fma(t, v.high, 0x1.61eff89d5771cp-42);
  t = std::fma(t, v.high, -0x1.ad9b88b9184cep-38);
  t = std::fma(t, v.high, -0x1.bfdbdbc19283bp-38);
  t = std::fma(t, v.high, 0x1.942bed019d091p-35);
  t = std::fma(t, v.high, 0x1.4a967baf2ef91p-34);
  t = std::fma(t, v.high, -0x1.8e7331c4af2fbp-32);
  t = std::fma(t, v.high, -0x1.94567fbea2cbep-31);
  t = std::fma(t, v.high, 0x1.b69bd7ea796a6p-29);
  t = std::fma(t, v.high, 0x1.b717b96fc8219p-28);
  t = std::fma(t, v.high, -0x1.150cc950d0ceap-25);
  t = std::fma(t, v.high, -0x1.82fbd4708e3cep-25);
  DoubleDouble s = t;
  s = s * v + DoubleDouble(0x1.85559b42c13ddp-22, -0x1.0fb125ae9036cp-76);
  s = s * v + DoubleDouble(0x1.5d4aa17f93006p-24, -0x1.a519abd14e08fp-78);
  s = s * v + DoubleDouble(-0x1.12862574bfe7bp-18, -0x1.4aada74f20b49p-72);
  s = s * v + DoubleDouble(0x1.adf29d3b072c0p-18, 0x1.7f43f96cc34c2p-72);
  s = s * v + DoubleDouble(0x1.2556962a5f1dap-15, 0x1.461626ffe1a69p-71);
  s = s * v + DoubleDouble(-0x1.762f1dd07a28cp-13, -0x1.036165e97eb72p-67);
  s = s * v + DoubleDouble(0x1.16f4f21c88bcdp-13, -0x1.4f037dbe7bd24p-69);
  s = s * v + DoubleDouble(0x1.0b4a4bda5ab3ap-9, 0x1.114d767a4ddd7p-65);
  s = s * v + DoubleDouble(-0x1.9d1284b891e56p-7, 0x1.775d640f84272p-62);
  s = s * v + DoubleDouble(0x1.741db1924d9c3p-5, -0x1.caec751568fe4p-60);
  s = s * v + DoubleDouble(-0x1.f6585283874b9p-4, -0x1.485f42a338570p-59);
  s = s * v + DoubleDouble(0x1.12b24b886ec26p-2, 0x1.ce71b9370884dp-57);
  s = s * v + DoubleDouble(-0x1.f86dca2f3841fp-2, 0x1.19033f23bd8a8p-57);
  s = s * v + DoubleDouble(0x1.8c21a8a7dfecap-1, -0x1.90c79b76478c6p-55);
  s = s * v + DoubleDouble(-0x1.0ca5303c0b8ccp+0, 0x1.2a421a38555eap-55);
  s = s * v + DoubleDouble(0x1.3bd1c1b02e1a8p+0, -0x1.753de3cf088dcp-57);
  return w * s;
}

// v erfc(x), rounded to a subnormal number once.
AUTOFN_FN DoubleDouble times_erfc(DoubleDouble v, DoubleDouble x) {
  const DoubleDouble size = fabs(x), y = choose(size.high > 27.5, 27.5, size);
  const DoubleDouble tail = times_exp_dd(v * erfc_factor(y), -(size * size));
  return choose(x.high < 0.0, v * 2.0 - tail, tail);
}

AUTOFN_FN DoubleDouble erfc_dd(DoubleDouble x) { return times_erfc(1.0, x); }

AUTOFN_FN DoubleDouble erf_dd(DoubleDouble x) {
  const DoubleDouble z = x * x;
  double t = 0x1.5f7919bc67b8cp-58;
  t = std::fma(t, z.high, -0x1.a2007af3447f6p-54);
  t = std::fma(t, z.high, 0x1.d70b3537f4765p-50);
  t = std::fma(t, z.high, -0x1.f56f071a885cfp-46);
  t = std::fma(t, z.high, 0x1.f683ae4a97007p-42);
  t = std::fma(t, z.high, -0x1.d8453cb0c46eap-38);
  t = std::fma(t, z.high, 0x1.9e6ad5e55a730p-34);
  t = std::fma(t, z.high, -0x1.51d7181c5d36dp-30);
  t = std::fma(t, z.high, 0x1.fcc5720624c1cp-27);
  t = std::fma(t, z.high, -0x1.5f742ec43e71ap-23);
  DoubleDouble s = t;
  s = s * z + DoubleDouble(0x1.b9e6c9dc651a3p-20, -0x1.fe08d49bd93ddp-74);
  s = s * z + DoubleDouble(-0x1.f4d25c3e0c2ebp-17, -0x1.79b1b9b5c586cp-71);
  s = s * z + DoubleDouble(0x1.f9a326f9b89b7p-14, 0x1.e9a2341c71459p-68);
  s = s * z + DoubleDouble(-0x1.c02db40040b86p-11, 0x1.d9a497a0f8b0ep-65);
  s = s * z + DoubleDouble(0x1.565bcd0e6a53fp-8, -0x1.a73e0832f7e39p-64);
  s = s * z + DoubleDouble(-0x1.b82ce31288b51p-6, 0x1.1015978e7ac92p-61);
  s = s * z + DoubleDouble(0x1.ce2f21a042be2p-4, -0x1.2871bc5e00766p-58);
  s = s * z + DoubleDouble(-0x1.812746b0379e7p-2, 0x1.ee12e49cab700p-57);
  s = s * z + DoubleDouble(0x1.20dd750429b6dp+0, 0x1.1ae3a914fed80p-56);
  const DoubleDouble far = signed_as(DoubleDouble(1.0) - erfc_dd(fabs(x)), x);
  return choose(std::fabs(x.high) < 0.5, x * s, far);
}

// v times the distribution function at x.
AUTOFN_FN DoubleDouble times_normcdf_dd(DoubleDouble v, DoubleDouble x) {
  return times_erfc(v * 0.5, x * DoubleDouble(-0x1.6a09e667f3bcdp-1, 0x1.bdd3413b26456p-55));
}

AUTOFN_FN DoubleDouble normcdf_dd(DoubleDouble x) { return times_normcdf_dd(1.0, x); }
