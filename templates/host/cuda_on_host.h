// What nvcc and CUDA's runtime provide, for a C++ compiler: enough that kernels.cu, unchanged, runs
// on this machine under its sanitizers, launches included.
//
// One CPU thread plays every CUDA thread. Up to the first barrier of a block they run one after the
// other; from there on each is a fiber of its own, so that a barrier is a switch to the next one.
// A missing barrier then reads what a later thread has yet to write, every time.
#pragma once
#include <math.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>

// Primitives are what they are on a GPU, with the C library's functions for CUDA's.
#define __CUDACC__

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y = 1, z = 1;
  dim3(unsigned width = 1) : x(width) {}
};

inline dim3 threadIdx(0), blockIdx(0), blockDim, gridDim;

namespace autofn_host {

constexpr std::size_t kStack = 256 * 1024;

// The threads of one block.
class Block {
 public:
  static Block& current() {
    static Block block;
    return block;
  }

  // Runs body() in every thread.
  template <typename Body> void run(const Body& body) {
    body_ = [](const void* given) { (*static_cast<const Body*>(given))(); };
    given_ = &body;
    barriers_ = 0;
    start(0);
    if (barriers_ == 0) return;  // the first fiber has run all threads
    // All are waiting at a barrier, or none is.
    for (unsigned t = 1; t < blockDim.x; ++t) start(t);
    while (fibers_[0].waiting) {
      for (unsigned t = 0; t < blockDim.x; ++t) {
        if (!fibers_[t].waiting) fail("threads of a block wait at different barriers");
        resume(t);
      }
      for (unsigned t = 1; t < blockDim.x; ++t) {
        if (fibers_[t].waiting != fibers_[0].waiting) fail("a barrier that not all threads reach");
      }
    }
  }

  void wait() {
    ++barriers_;
    const unsigned self = threadIdx.x;
    if (!fibers_[self].running) fail("a barrier that not all threads reach");
    fibers_[self].waiting = true;
    swapcontext(&fibers_[self].context, &scheduler_);
    fibers_[self].waiting = false;
  }

 private:
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[kStack]};
    bool waiting = false, running = false;
  };

  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "cuda_on_host: error: %s\n", what);
    std::abort();
  }

  void start(unsigned thread) {
    while (fibers_.size() <= thread) fibers_.emplace_back();
    Fiber& fiber = fibers_[thread];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, [] { current().enter(); }, 0);
    fiber.waiting = false;
    fiber.running = true;
    resume(thread);
  }

  void resume(unsigned thread) {
    threadIdx.x = thread;
    swapcontext(&scheduler_, &fibers_[thread].context);
  }

  void enter() {
    const unsigned self = threadIdx.x;
    body_(given_);
    fibers_[self].running = false;
    if (self != 0 || barriers_ != 0) return;
    for (threadIdx.x = 1; threadIdx.x < blockDim.x; ++threadIdx.x) body_(given_);
  }

  void (*body_)(const void*) = nullptr;
  const void* given_ = nullptr;
  unsigned barriers_ = 0;
  ucontext_t scheduler_;
  std::deque<Fiber> fibers_;
};

}  // namespace autofn_host

inline void __syncthreads() { autofn_host::Block::current().wait(); }

inline std::uint32_t __umulhi(std::uint32_t a, std::uint32_t b) {
  return std::uint32_t(std::uint64_t(a) * b >> 32);
}
