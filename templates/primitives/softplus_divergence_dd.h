// needs: softplus_dd, sigmoid_dd, expm1mx_dd, log1pmx_dd
// softplus(v) - softplus(u) - (v - u) sigmoid(u), the same for -u and -v: from u <= 0; far apart,
// where nothing cancels, as it stands.
AUTOFN_FN DoubleDouble softplus_divergence_dd(DoubleDouble u, DoubleDouble v) {
  const DoubleDouble size = fabs(u);
  const DoubleDouble low = -choose(size.high > 1e4, DoubleDouble(1e4), size);
  const DoubleDouble to = choose(u.high > 0.0, -v, v), apart = to - low;
  const DoubleDouble share = sigmoid_dd(low);
  const DoubleDouble near = log1pmx_dd(share * expm1_dd(apart)) + share * expm1mx_dd(apart);
  const DoubleDouble far = softplus_dd(to) - softplus_dd(low) - share * apart;
  return choose(std::fabs(apart.high) < 1.0, near, far);
}
