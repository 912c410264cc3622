// The entry points by which the host check calls the kernels of a package.
#include "cuda_on_host.h"

#include "kernels.cu"

extern "C" int autofn_run(int kernel, const autofn::Call* call, void* workspace) {
  return autofn::run_on_cuda(kernel, *call, workspace, nullptr);
}

extern "C" std::int64_t autofn_workspace(int kernel, const autofn::Call* call) {
  return autofn::cuda_workspace(kernel, *call);
}
