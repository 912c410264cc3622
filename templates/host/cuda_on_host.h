// What nvcc provides, for a C++ compiler: enough that kernels.cu, unchanged, runs on this machine
// under its sanitizers. One CPU thread plays every CUDA thread in turn; there are no barriers.
#pragma once
#include <math.h>

#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct HostDim {
  unsigned x = 1, y = 1, z = 1;
};
inline thread_local HostDim threadIdx, blockIdx, blockDim, gridDim;

// Runs `kernel` once per thread of `grid` blocks of `block` threads.
template <typename Kernel>
void launch_on_host(unsigned grid, unsigned block, const Kernel& kernel) {
  gridDim = {grid};
  blockDim = {block};
  for (unsigned b = 0; b < grid; ++b) {
    for (unsigned t = 0; t < block; ++t) {
      blockIdx = {b, 0, 0};
      threadIdx = {t, 0, 0};
      kernel();
    }
  }
}
