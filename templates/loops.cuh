// Loops over elements: the same text in every package. A kernel of kernels.cu is an `Op`, which
// loads, computes and stores kWidth or 1 elements at the offsets it is given; a loop here gives
// it every element of the broadcast shape once.
//
// Any number of elements from 0 on and any grid: threads stride over the elements in 64 bits.
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace autofn {

constexpr int kThreads = 256;  // per block, at most
constexpr int kMaxDims = 8;    // after dimensions that run on in every operand are merged

// What elements of storage type S are computed in: 16-bit types widen to float, round once.
template <typename S> struct Compute { using type = float; };
template <> struct Compute<double> { using type = double; };
template <typename S> using compute_t = typename Compute<S>::type;

// Elements in 16 bytes, the widest access of one thread.
template <typename S> constexpr int kWidth = 16 / sizeof(S);

template <typename T> __device__ T widen(T value) { return value; }
inline __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
inline __device__ float widen(__half value) { return __half2float(value); }

template <typename S> __device__ S narrow(compute_t<S> value) { return value; }
template <> inline __device__ __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <> inline __device__ __half narrow<__half>(float value) { return __float2half_rn(value); }

// N elements, loaded and stored by as few and as wide accesses as there are.
template <typename S, int N> struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) Pack {
  S at[N];
};

template <int N, typename S> __device__ Pack<compute_t<S>, N> load(const S* from) {
  const Pack<S, N> raw = *reinterpret_cast<const Pack<S, N>*>(from);
  Pack<compute_t<S>, N> values;
#pragma unroll
  for (int k = 0; k < N; ++k) values.at[k] = widen(raw.at[k]);
  return values;
}

template <int N, typename S> __device__ void store(S* to, const Pack<compute_t<S>, N>& values) {
  Pack<S, N> raw;
#pragma unroll
  for (int k = 0; k < N; ++k) raw.at[k] = narrow<S>(values.at[k]);
  *reinterpret_cast<Pack<S, N>*>(to) = raw;
}

template <typename... P> __device__ bool aligned(P... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) | ... | 0) % 16) == 0;
}

// --- flat: every operand is dense, in one layout -------------------------------------------

// The offset of an element, for the k-th input or for any output.
struct Flat {
  std::int64_t output;
  __device__ std::int64_t input(int) const { return output; }
};

template <typename Op>
__global__ void __launch_bounds__(kThreads) flat_kernel(Op op, std::int64_t elements) {
  constexpr int N = kWidth<typename Op::storage>;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t(gridDim.x) * blockDim.x;
  const std::int64_t packs = op.aligned() ? elements / N : 0;
  for (std::int64_t i = thread; i < packs; i += threads) op.template apply<N>(Flat{i * N});
  for (std::int64_t i = packs * N + thread; i < elements; i += threads) {
    op.template apply<1>(Flat{i});
  }
}

// --- strided: inputs of any strides, 0 where they broadcast; outputs dense in row-major order --

template <int kInputs> struct Layout {
  int dims;                                 // at most kMaxDims
  std::int64_t sizes[kMaxDims];             // of the broadcast shape, outermost first
  std::int64_t strides[kInputs][kMaxDims];  // in elements
};

template <int kInputs> struct Strided {
  std::int64_t output;
  std::int64_t inputs[kInputs];
  __device__ std::int64_t input(int k) const { return inputs[k]; }
};

template <int kInputs>
__device__ Strided<kInputs> locate(const Layout<kInputs>& layout, std::int64_t element) {
  Strided<kInputs> at = {element, {}};
  for (int d = layout.dims - 1; d >= 0; --d) {
    const std::int64_t index = element % layout.sizes[d];
    element /= layout.sizes[d];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) at.inputs[k] += index * layout.strides[k][d];
  }
  return at;
}

template <typename Op>
__global__ void __launch_bounds__(kThreads)
strided_kernel(Op op, Layout<Op::kInputs> layout, std::int64_t elements) {
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = thread; i < elements; i += threads) {
    op.template apply<1>(locate(layout, i));
  }
}

}  // namespace autofn

// Both loops of a kernel, for each of the four storage types.
#define AUTOFN_INSTANTIATE(Op) \
  AUTOFN_INSTANTIATE_FOR(Op<double>) \
  AUTOFN_INSTANTIATE_FOR(Op<float>) \
  AUTOFN_INSTANTIATE_FOR(Op<__nv_bfloat16>) \
  AUTOFN_INSTANTIATE_FOR(Op<__half>)
#define AUTOFN_INSTANTIATE_FOR(...) \
  template __global__ void ::autofn::flat_kernel(__VA_ARGS__, std::int64_t); \
  template __global__ void ::autofn::strided_kernel( \
      __VA_ARGS__, ::autofn::Layout<__VA_ARGS__::kInputs>, std::int64_t);
