// bfloat16 on the host, with the names and the rounding of CUDA's header of this name.
#pragma once
#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  const std::uint32_t wide = std::uint32_t(value.bits) << 16;
  float result;
  std::memcpy(&result, &wide, sizeof result);
  return result;
}

// To nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  std::uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  if (value != value) return {0x7fff};
  wide += 0x7fff + ((wide >> 16) & 1);
  return {std::uint16_t(wide >> 16)};
}
