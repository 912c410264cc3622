// Functions that JavaScript's Math lacks, for curves on a screen.
const F = (() => {
  const erfcxTail = (x) => { // of x > 0, by a continued fraction from its end
    let f = 0;
    for (let k = 120; k > 0; k--) f = k / 2 / (x + f);
    return 1 / Math.sqrt(Math.PI) / (x + f);
  };
  const erfcTail = (x) => Math.exp(-x * x) * erfcxTail(x);
  const erf = (x) => {
    if (Math.abs(x) > 2.5) return Math.sign(x) * (1 - erfcTail(Math.abs(x)));
    let term = x, sum = x;
    for (let k = 1; k < 80; k++) { term *= -x * x / k; sum += term / (2 * k + 1); }
    return 2 / Math.sqrt(Math.PI) * sum;
  };
  const erfc = (x) => (x > 2.5 ? erfcTail(x) : 1 - erf(x));
  const loggamma = (x) => {
    if (x < 0.5) return Math.log(Math.PI / Math.abs(Math.sin(Math.PI * x))) - loggamma(1 - x);
    let shift = 0;
    while (x < 10) { shift += Math.log(x); x += 1; }
    const y = 1 / (x * x);
    const series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188)))) / x;
    return (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2 + series - shift;
  };
  const gamma = (x) => {
    if (x < 0.5) return Math.PI / (Math.sin(Math.PI * x) * gamma(1 - x));
    return Math.exp(loggamma(x));
  };
  const factorial = (n) => (n < 2 ? 1 : n * factorial(n - 1));
  const digamma = (x) => {
    if (x <= 0 && x === Math.floor(x)) return NaN;
    if (x < 0) return digamma(1 - x) - Math.PI / Math.tan(Math.PI * x);
    let sum = 0;
    while (x < 10) { sum -= 1 / x; x += 1; }
    const y = 1 / (x * x);
    return sum + Math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)));
  };
  const polygamma = (n, x) => { // (-1)^(n+1) n! times the sum of (x + k)^-(n+1), its rest by Euler
    let sum = 0;
    while (x < 20) { sum += Math.pow(x, -n - 1); x += 1; }
    const bernoulli = [1 / 6, -1 / 30, 1 / 42, -1 / 30];
    let rest = Math.pow(x, -n) / n + Math.pow(x, -n - 1) / 2;
    bernoulli.forEach((b, k) => {
      const m = 2 * k + 2;
      rest += b * factorial(m + n - 1) / factorial(m) / factorial(n) * Math.pow(x, -n - m);
    });
    return (n % 2 ? 1 : -1) * factorial(n) * (sum + rest);
  };
  const sinc = (x) => (Math.abs(x) < 1e-4 ? 1 - x * x / 6 : Math.sin(x) / x);
  const bessel = (n, x) => {
    if (Math.abs(x) < n + 4) { // its power series
      let term = 1;
      for (let k = 1; k <= n; k++) term *= x / (2 * k + 1);
      let sum = term;
      for (let k = 1; k < 60; k++) { term *= -x * x / 2 / k / (2 * n + 2 * k + 1); sum += term; }
      return sum;
    }
    let low = sinc(x), here = (sinc(x) - Math.cos(x)) / x;
    for (let k = 1; k < n; k++) [low, here] = [here, (2 * k + 1) / x * here - low];
    return here;
  };
  const phi = (n, x) => {
    if (Math.abs(x) < 2) {
      let term = 1 / factorial(n), sum = term;
      for (let k = 1; k < 40; k++) { term *= x / (n + k); sum += term; }
      return sum;
    }
    return n === 0 ? Math.exp(x) : (phi(n - 1, x) - 1 / factorial(n - 1)) / x;
  };
  const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  const sigmoid = (x) => (x < 0 ? Math.exp(x) / (1 + Math.exp(x)) : 1 / (1 + Math.exp(-x)));
  const meanRoot = (a, c) => {
    const root = Math.sqrt(a * a + c);
    return a < 0 ? c / (root - a) / 2 : (a + root) / 2;
  };
  const expm1mx = (x) => (Math.abs(x) < 1 ? x * x * phi(2, x) : Math.expm1(x) - x);
  const log1pmx = (x) => {
    if (Math.abs(x) > 0.01) return Math.log1p(x) - x;
    return x * x * (-1 / 2 + x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6 - x / 7)))));
  };
  const mills = (t) => Math.sqrt(Math.PI / 2) * (t > 3 ? erfcxTail(t / Math.SQRT2)
    : erfc(t / Math.SQRT2) * Math.exp(t * t / 2));
  // Of the normal distribution between v and u: its logarithm, the densities at both over it, mean.
  const normalMass = (u, v, d) => {
    const up = u + v >= 0, near = up ? v : -u, far = up ? u : -v, middle = Math.abs(u + v) / 2;
    const root = Math.sqrt(2 * Math.PI), fall = d * middle;
    let base = 0, mass, atNear, atFar;
    if (d * Math.max(middle, 1) < 1) {
      const mh = fall / 2, square = d * d / 4;
      let before = 1, at = mh / 2, mean = 1;
      for (let n = 1; n < 20; n++) {
        [before, at] = [at, (mh * at - square * before * n / (n + 1)) / (n + 2)];
        mean += n % 2 ? at : 0;
      }
      [base, mass] = [middle, d * mean / root];
      atNear = Math.exp(mh - square / 2) / (d * mean);
    } else if (near > 0) {
      [base, mass] = [near, (mills(near) - Math.exp(-fall) * mills(far)) / root];
      atNear = 1 / (mass * root);
    } else {
      mass = 1 - erfc(-near / Math.SQRT2) / 2 - erfc(far / Math.SQRT2) / 2;
      atNear = Math.exp(-near * near / 2) / root / mass;
    }
    atFar = atNear * Math.exp(-fall);
    const mean = -atNear * Math.expm1(-fall);
    return [Math.log(mass) - base * base / 2, up ? atFar : atNear, up ? atNear : atFar,
      up ? mean : -mean];
  };
  // Of x / y half turns, which % leaves exact.
  const sinpi = (x, y) => Math.sin(Math.PI * ((x % (2 * y)) / y));
  const cospi = (x, y) => Math.cos(Math.PI * ((x % (2 * y)) / y));
  return {
    sinpi, cospi,
    sincpi: (x, y) => (x === 0 ? 1 : sinpi(x, y) / (Math.PI * (x / y))),
    spherical_bessel_pi: (n, x, y) => bessel(n, Math.PI * (x / y)),
    erf, erfc, gamma, loggamma, digamma, polygamma, sinc, phi, softplus, sigmoid,
    spherical_bessel: bessel,
    normcdf: (x) => erfc(-x / Math.SQRT2) / 2,
    log_normal_mass: (u, v, d) => normalMass(u, v, d)[0],
    normal_mass_upper: (u, v, d) => normalMass(u, v, d)[1],
    normal_mass_lower: (u, v, d) => normalMass(u, v, d)[2],
    normal_mass_mean: (u, v, d) => normalMass(u, v, d)[3],
    log1mexp: (u) => (u > -0.6875 ? Math.log(-Math.expm1(u)) : Math.log1p(-Math.exp(u))),
    logaddexp: (a, b) => Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b))),
    logcosh: (x) => Math.abs(x) + Math.log1p(Math.exp(-2 * Math.abs(x))) - Math.LN2,
    sech2: (x) => { const e = Math.exp(-2 * Math.abs(x)); return 4 * e / ((1 + e) * (1 + e)); },
    clamp: (x, low, high) => Math.min(Math.max(x, low), high),
    root_sum: (a, c) => Math.sqrt(a * a + c),
    mean_root: meanRoot, mean_any_root: meanRoot,
    root_split: (u, v, m, d, c) => {
      const roots = Math.sqrt(u * u + c) + Math.sqrt(v * v + c);
      return roots && 4 * m * (d / roots);
    },
    share_split: (u, v, m, d, c) => {
      const above = Math.sqrt(u * u + c), below = Math.sqrt(v * v + c);
      const near = 4 * c * Math.abs(m) / above * d / below / above / below;
      return u * v > 0 ? near / Math.abs(u / above + v / below) : u / above - v / below;
    },
    root_rise: (x, d) => d && d / (Math.sqrt(x + d) + Math.sqrt(x)),
    root_rest: (a, c) => a * a / (Math.sqrt(a * a + c) + Math.sqrt(c)),
    expm1mx, log1pmx,
    softplus_rise: (x, d) => {
      const low = Math.min(x, x + d), size = Math.min(Math.abs(d), 700);
      const rise = Math.log1p(Math.expm1(size) * sigmoid(low));
      return (d < 0 ? -1 : 1) * rise;
    },
    softplus_divergence: (u, v) => {
      const low = -Math.abs(u), to = u > 0 ? -v : v, d = to - low, p = sigmoid(low);
      const near = log1pmx(p * Math.expm1(d)) + p * expm1mx(d);
      return Math.abs(d) < 1 ? near : softplus(to) - softplus(low) - p * d;
    },
    pow1pm1: (x, y) => Math.expm1(y * Math.log1p(x)),
    along: (d, v) => (d === 0 ? 0 : v),
    times_exp: (v, u) =>
      v === 0 || (u < -1e30 && Math.abs(v) === Infinity) ? 0 : v * Math.exp(u),
    xlogy: (v, u) => (v === 0 && u >= 0 ? 0 : v * Math.log(u)),
    xlog1py: (v, u) => (v === 0 && u >= -1 ? 0 : v * Math.log1p(u)),
  };
})();
