// CUDA's runtime on the host, as far as launches need it: a launch has run when it returns.
#pragma once
#include "cuda_on_host.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
typedef struct CUstream_st* cudaStream_t;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

inline cudaError_t cudaGetLastError() { return cudaSuccess; }

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  gridDim = config->gridDim;
  blockDim = config->blockDim;
  for (unsigned block = 0; block < config->gridDim.x; ++block) {
    blockIdx.x = block;
    autofn_host::Block::current().run([&] { kernel(arguments...); });
  }
  return cudaSuccess;
}
