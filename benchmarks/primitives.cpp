// One primitive, AUTOFN_NAME in the file AUTOFN_TEXT, for benchmarks/primitives.py, which compiles
// this several times: errors and checksums over bit patterns, and times. Links libmvec.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "prelude.h"

namespace autofn {
#include AUTOFN_TEXT
}

#define AUTOFN_CAT_(a, b) a##b
#define AUTOFN_CAT(a, b) AUTOFN_CAT_(a, b)

namespace {

constexpr int kBlock = 4096;

alignas(64) float xs[kBlock], ws[kBlock], ys[kBlock];
alignas(64) double refs[kBlock];

#ifdef AUTOFN_BINARY
#define AUTOFN_ARGS(i) (x[i], w[i])
#define AUTOFN_DOUBLES(i) (static_cast<double>(x[i]), static_cast<double>(w[i]))
#else
#define AUTOFN_ARGS(i) (x[i])
#define AUTOFN_DOUBLES(i) (static_cast<double>(x[i]))
#endif

// w is not read where the primitive takes one argument.
void own(const float* __restrict x, [[maybe_unused]] const float* __restrict w,
         float* __restrict y, int n) {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = autofn::AUTOFN_NAME AUTOFN_ARGS(i);
}

// AUTOFN_LIBRARY is not defined where the C library has no such function.
void library([[maybe_unused]] const float* __restrict x, [[maybe_unused]] const float* __restrict w,
             [[maybe_unused]] float* __restrict y, [[maybe_unused]] int n) {
#ifdef AUTOFN_LIBRARY
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = std::AUTOFN_LIBRARY AUTOFN_ARGS(i);
#endif
}

void copy(const float* __restrict x, float* __restrict y, int n) {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = -x[i];
}

// In double, through libmvec: its 4 ULP of double are 2^-27 ULP of float.
void reference(const float* __restrict x, [[maybe_unused]] const float* __restrict w,
               double* __restrict y, int n) {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = autofn::AUTOFN_NAME AUTOFN_DOUBLES(i);
}

// |y - ref| in units of float's last place at ref; 2^128 stands for inf; a wrong sign, of zeros
// too, and NaN against a number are infinitely wrong.
inline double error(double y, double ref) {
    const bool both = y != y && ref != ref;
    const double sign = std::signbit(y) != std::signbit(ref) ? INFINITY : 0.0;
    y = y > 0x1p+128 ? 0x1p+128 : y;
    y = y < -0x1p+128 ? -0x1p+128 : y;
    ref = ref > 0x1p+128 ? 0x1p+128 : ref;
    ref = ref < -0x1p+128 ? -0x1p+128 : ref;
    std::uint64_t e = (autofn::bits(ref) >> 52) & 2047;
    e = e < 1023 - 126 ? 1023 - 126 : e;
    e = e > 1023 + 127 ? 1023 + 127 : e;
    const double units = std::fabs(y - ref) * autofn::from_bits((2046 + 23 - e) << 52);
    return both ? 0.0 : units + sign;
}

struct Worst {
    double ulp = 0, ref = 0;
    float x = 0, w = 0, y = 0;

    void block(double limit) {
        own(xs, ws, ys, kBlock);
        scan(limit);
    }

    void scan(double limit) {
        reference(xs, ws, refs, kBlock);
        bool bad = false;
#pragma omp simd reduction(| : bad)
        for (int i = 0; i < kBlock; ++i) bad |= !(error(ys[i], refs[i]) <= ulp);
        if (!bad) return;
        for (int i = 0; i < kBlock; ++i) {
            double e = error(ys[i], refs[i]);
            e = e == e ? e : INFINITY;
            if (std::fabs(xs[i]) > limit || e <= ulp) continue;
            ulp = e, x = xs[i], w = ws[i], y = ys[i], ref = refs[i];
        }
    }
};

std::uint64_t state;

std::uint32_t random32() {  // splitmix64
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
}

float random_in(float low, float high) {
    return low + (high - low) * static_cast<float>(random32() >> 8) * 0x1p-24f;
}

// What a pair of arguments is drawn from: any bits, the ordinary, the special and their neighbours.
float draw(std::uint32_t kind) {
    static const float special[] = {0.0f,  1.0f,   2.0f,       0.5f,      3.0f,     INFINITY,
                                    1e-45f, 0x1p-126f, 3.4028235e38f, 0x1.8p+24f, 0x1p+23f, NAN};
    if (kind == 0) return autofn::from_bits(random32());
    if (kind == 1) return random_in(-4.0f, 4.0f);
    if (kind == 2) return 1.0f + random_in(-0x1p-6f, 0x1p-6f);
    if (kind == 3) return static_cast<float>(static_cast<int>(random32() % 513) - 256) * 0.5f;
    const float x = special[random32() % (sizeof special / sizeof *special)];
    const std::uint32_t near = random32() % 5 - 2;
    const std::uint32_t sign = random32() & 0x80000000u;
    return autofn::from_bits((autofn::bits(x) + (random32() % 4 == 0 ? near : 0)) ^ sign);
}

#ifdef AUTOFN_BINARY
// Large exponents against bases near 1, where a logarithm's relative error counts most.
void pairs() {
    for (int i = 0; i < kBlock; ++i) {
        const std::uint32_t k = random32() % 8;
        xs[i] = k < 2 ? std::fabs(draw(0)) : k < 4 ? draw(2) : draw(random32() % 5);
        ws[i] = k == 0   ? random_in(-128.0f, 128.0f) / std::log2(xs[i])
                : k == 2 ? random_in(-4e4f, 4e4f)
                         : draw(random32() % 5);
    }
}
#endif

// Bit patterns from..to in steps, or as many random pairs from the seed `from`; own's or the
// library's values in ys.
template <class F>
void walk(std::uint64_t from, std::uint64_t to, std::uint64_t step, F f) {
#ifdef AUTOFN_BINARY
    state = from;
    for (std::uint64_t i = 0; i < to; i += kBlock * step) pairs(), f();
#else
    for (std::uint64_t i = from; i < to; i += kBlock * step) {
        for (int k = 0; k < kBlock; ++k) {
            const std::uint64_t j = std::min(i + k * step, to - 1);
            xs[k] = autofn::from_bits(static_cast<std::uint32_t>(j));
        }
        f();
    }
#endif
}

template <class F>
double best(F f) {
    double least = 1e9;
    for (int i = 0; i < 50; ++i) {
        const auto start = std::chrono::steady_clock::now();
        f();
        const std::chrono::duration<double> d = std::chrono::steady_clock::now() - start;
        least = std::min(least, d.count());
    }
    return least * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "time" && argc == 6) {
        // 2^20 elements from memory, then 4096 of them 256 times.
        const int n = 1 << 20;
        float* const x = static_cast<float*>(std::aligned_alloc(64, sizeof(float) << 20));
        float* const w = static_cast<float*>(std::aligned_alloc(64, sizeof(float) << 20));
        float* const y = static_cast<float*>(std::aligned_alloc(64, sizeof(float) << 20));
        for (int i = 0; i < n; ++i) {
            x[i] = random_in(std::strtof(argv[2], nullptr), std::strtof(argv[3], nullptr));
            w[i] = random_in(std::strtof(argv[4], nullptr), std::strtof(argv[5], nullptr));
            y[i] = 0.0f;
        }
        const double a = best([&] { own(x, w, y, n); });
        const double b = best([&] { library(x, w, y, n); });
        const double c = best([&] { copy(x, y, n); });
        const double d = best([&] { for (int i = 0; i < 256; ++i) own(x, w, y, kBlock); });
        const double e = best([&] { for (int i = 0; i < 256; ++i) library(x, w, y, kBlock); });
        const double f = best([&] { for (int i = 0; i < 256; ++i) copy(x, y, kBlock); });
        std::printf("%.0f %.0f %.0f %.0f %.0f %.0f\n", a, b, c, d, e, f);
        return 0;
    }
    if (argc != 6) return 2;
    const std::uint64_t from = std::strtoull(argv[2], nullptr, 0);
    const std::uint64_t to = std::strtoull(argv[3], nullptr, 0);
    const std::uint64_t step = std::strtoull(argv[4], nullptr, 0);
    const double limit = std::strtod(argv[5], nullptr);
    if (mode == "sum") {
        // Of the bits of every value, with one NaN for all.
        std::uint64_t sum = 0;
        walk(from, to, step, [&] {
            own(xs, ws, ys, kBlock);
            std::uint64_t part = 0;
            for (int i = 0; i < kBlock; ++i) {
                const float y = ys[i] == ys[i] ? ys[i] : 0x1.8p+100f;
                part += autofn::bits(y) * (2u * i + 1u);
            }
            sum = sum * 0x100000001b3u + part;
        });
        std::printf("%016llx\n", static_cast<unsigned long long>(sum));
        return 0;
    }
    Worst worst;
    if (mode == "library") {
        walk(from, to, step, [&] { library(xs, ws, ys, kBlock), worst.scan(limit); });
    } else {
        walk(from, to, step, [&] { worst.block(limit); });
    }
    std::printf("%.4f %a %a %a %a\n", worst.ulp, worst.x, worst.w, worst.y, worst.ref);
    return 0;
}
