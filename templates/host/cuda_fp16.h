// IEEE half on the host, with the names and the rounding of CUDA's header of this name.
#pragma once
#include <cstdint>
#include <cstring>

struct __half {
  std::uint16_t bits;
};

inline float __half2float(__half value) {
  const std::uint32_t sign = std::uint32_t(value.bits & 0x8000) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fff;
  std::uint32_t wide;
  if (magnitude >= 0x7c00) {  // infinity or NaN
    wide = sign | 0x7f800000 | (magnitude & 0x3ff) << 13;
  } else if (magnitude >= 0x400) {
    wide = sign | (magnitude + ((127 - 15) << 10)) << 13;
  } else {  // zero or subnormal: a multiple of 2^-24
    const float small = float(magnitude) * 0x1p-24f;
    std::memcpy(&wide, &small, sizeof wide);
    wide |= sign;
  }
  float result;
  std::memcpy(&result, &wide, sizeof result);
  return result;
}

// To nearest, ties to even.
inline __half __float2half_rn(float value) {
  std::uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  const std::uint16_t sign = std::uint16_t(wide >> 16 & 0x8000);
  wide &= 0x7fffffff;
  if (wide > 0x7f800000) return {0x7fff};
  if (wide >= 0x477ff000) return {std::uint16_t(sign | 0x7c00)};  // 65520 and up
  if (wide < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    float shifted;
    std::memcpy(&shifted, &wide, sizeof shifted);
    shifted += 0.5f;
    std::memcpy(&wide, &shifted, sizeof wide);
    return {std::uint16_t(sign | (wide - 0x3f000000))};
  }
  wide += 0xfff + (wide >> 13 & 1);
  return {std::uint16_t(sign | ((wide >> 13) - ((127 - 15) << 10)))};
}
