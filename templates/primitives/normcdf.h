// needs: exp_product
// The standard normal distribution function: exp(-x^2 / 2) times a polynomial in 1 - 7 r, over
// z + 7/2, with z = |x| and r = 1 / (z + 7/2), for the lower tail; 1 minus that above 0.
// At most 4.00 ULP over every float32 (benchmarks/primitives.md).
AUTOFN_FN float normcdf(float x) {
#ifdef __CUDACC__
    return ::normcdff(x);
#else
    const float r = 1.0f / (std::fabs(x) + 3.5f);
    const float t = std::fma(-7.0f, r, 1.0f);
    float p = 0x1.8c17b8p-14f;
    p = std::fma(p, t, 0x1.a9e96ap-12f);
    p = std::fma(p, t, -0x1.f055b4p-12f);
    p = std::fma(p, t, -0x1.9d9c58p-9f);
    p = std::fma(p, t, 0x1.a8e85ep-8f);
    p = std::fma(p, t, 0x1.1d1072p-6f);
    p = std::fma(p, t, -0x1.db58aep-4f);
    p = std::fma(p, t, 0x1.42ff04p-2f);
    p = std::fma(p, t, -0x1.219152p-1f);
    p = std::fma(p, t, 0x1.7d241ap-1f);
    const float tail = exp_product(x, -0.5f * x) * (p * r);
    return x > 0.0f ? 1.0f - tail : tail;
#endif
}

AUTOFN_FN double normcdf(double x) { return 0.5 * std::erfc(-0.70710678118654752 * x); }
