// What every primitive needs: to be included at global scope, before the primitives' texts, which
// go inside `namespace autofn { ... }`.
//
// The double overloads, but for exp, call the C library. Where that is glibc on x86-64 and the
// compiler GNU's, a loop over them calls libmvec's vector variants (at most 4 ULP by its manual):
// link -lmvec.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define AUTOFN_FN __host__ __device__ __forceinline__
#else
// A loop around a call is not vectorised: always inline, however long.
#define AUTOFN_FN inline __attribute__((always_inline))
#endif

// What glibc's own headers declare under -ffast-math only.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__INTEL_COMPILER) && \
  defined(__x86_64__) && !defined(__CUDACC__) && defined(__GLIBC__)
#define AUTOFN_SIMD extern "C" __attribute__((simd("notinbranch")))
#if __GLIBC_PREREQ(2, 22)
AUTOFN_SIMD double sin(double) noexcept;
AUTOFN_SIMD float sinf(float) noexcept;
AUTOFN_SIMD double cos(double) noexcept;
AUTOFN_SIMD float cosf(float) noexcept;
AUTOFN_SIMD double exp(double) noexcept;
AUTOFN_SIMD float expf(float) noexcept;
AUTOFN_SIMD double log(double) noexcept;
AUTOFN_SIMD float logf(float) noexcept;
AUTOFN_SIMD double pow(double, double) noexcept;
AUTOFN_SIMD float powf(float, float) noexcept;
#endif
#if __GLIBC_PREREQ(2, 35)
AUTOFN_SIMD double acos(double) noexcept;
AUTOFN_SIMD float acosf(float) noexcept;
AUTOFN_SIMD double acosh(double) noexcept;
AUTOFN_SIMD float acoshf(float) noexcept;
AUTOFN_SIMD double asin(double) noexcept;
AUTOFN_SIMD float asinf(float) noexcept;
AUTOFN_SIMD double asinh(double) noexcept;
AUTOFN_SIMD float asinhf(float) noexcept;
AUTOFN_SIMD double atan(double) noexcept;
AUTOFN_SIMD float atanf(float) noexcept;
AUTOFN_SIMD double atan2(double, double) noexcept;
AUTOFN_SIMD float atan2f(float, float) noexcept;
AUTOFN_SIMD double atanh(double) noexcept;
AUTOFN_SIMD float atanhf(float) noexcept;
AUTOFN_SIMD double cbrt(double) noexcept;
AUTOFN_SIMD float cbrtf(float) noexcept;
AUTOFN_SIMD double cosh(double) noexcept;
AUTOFN_SIMD float coshf(float) noexcept;
AUTOFN_SIMD double erf(double) noexcept;
AUTOFN_SIMD float erff(float) noexcept;
AUTOFN_SIMD double erfc(double) noexcept;
AUTOFN_SIMD float erfcf(float) noexcept;
AUTOFN_SIMD double expm1(double) noexcept;
AUTOFN_SIMD float expm1f(float) noexcept;
AUTOFN_SIMD double log1p(double) noexcept;
AUTOFN_SIMD float log1pf(float) noexcept;
AUTOFN_SIMD double sinh(double) noexcept;
AUTOFN_SIMD float sinhf(float) noexcept;
AUTOFN_SIMD double tan(double) noexcept;
AUTOFN_SIMD float tanf(float) noexcept;
AUTOFN_SIMD double tanh(double) noexcept;
AUTOFN_SIMD float tanhf(float) noexcept;
#endif
#undef AUTOFN_SIMD
#endif

namespace autofn {

// How some compute: whatever the argument; as a first try, NaN where an argument is large; or
// quickly, whatever the argument: in double to 2^-34, for results in single precision; in single
// precision, on a GPU, for elements of 16-bit types.
enum Way { kFull, kTried, kQuick };

#ifdef __CUDACC__
constexpr bool kCuda = true;
#else
constexpr bool kCuda = false;
#endif

// Copies, not casts: compilers make them moves of whole vectors. Unsigned: these wrap around.
AUTOFN_FN std::uint32_t bits(float x) {
  std::uint32_t i;
  std::memcpy(&i, &x, sizeof i);
  return i;
}

AUTOFN_FN float from_bits(std::uint32_t i) {
  float x;
  std::memcpy(&x, &i, sizeof x);
  return x;
}

// 2^n, where the low bits of t hold n + 127.
AUTOFN_FN float power_of_two(float t) {
  return from_bits(bits(t) << 23);
}

AUTOFN_FN std::uint64_t bits(double x) {
  std::uint64_t i;
  std::memcpy(&i, &x, sizeof i);
  return i;
}

AUTOFN_FN double from_bits(std::uint64_t i) {
  double x;
  std::memcpy(&x, &i, sizeof x);
  return x;
}

}  // namespace autofn
