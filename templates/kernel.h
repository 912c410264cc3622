// What the kernels of a formula are to the code around them: the same for every formula.
//
// A kernel reads inputs and writes outputs over one iteration space, the broadcast shape of its
// inputs. An output may be smaller than that: a gradient is summed over the dimensions that its
// input broadcasts along.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace autofn {

enum class Dtype : std::int32_t { float64, float32, bfloat16, float16 };

constexpr int kMaxDims = 16;
constexpr int kMaxOperands = 32;

// A tensor of a call: where its first element is, and how far apart its elements are along each
// dimension of the iteration space, in elements. An input broadcasts along dimensions of stride 0,
// an output is summed over them.
struct Operand {
  void* data;  // of an output: null if it is not wanted
  Dtype dtype;
  std::int64_t strides[kMaxDims];
};

// One call of a kernel. Dimensions are outermost first, and none of size 1; neighbours that run on
// into each other in every operand are one. Outputs that are not summed are dense in this order.
struct Call {
  Dtype compute;  // float64, or float32 for every other dtype
  int dims;
  std::int64_t sizes[kMaxDims];
  std::int64_t elements;  // the product of the sizes; not 0
  Operand inputs[kMaxOperands];
  Operand outputs[kMaxOperands];
  const double* numbers;
};

// What an op takes after its tensors and numbers: nothing, where all its outputs are like its first
// tensor; the dtype of its outputs; or which gradients are needed, and the shape and dtype of each.
enum class Takes { nothing, dtype, likes };

// An operand's place: it is a tensor of the formula; a parameter of one element; or a parameter
// along a dimension of the formula's output, which is its place then.
constexpr int kTensor = 1000, kScalar = 1001;

// What the binding knows of a kernel.
struct Kernel {
  const char* schema;  // of its op: "forward(Tensor x, float beta) -> Tensor"
  int inputs;          // tensors
  int numbers;
  int outputs;
  Takes takes;
  int places[2 * kMaxOperands];  // of its tensors, then of its outputs
  // Of tensors of a 16-bit type: the one that all outputs are functions of, which are looked up,
  // or -1; and the tensors that each output is that function's product with, a bit each.
  int argument = -1;
  std::uint32_t factors[kMaxOperands] = {};
};

// bfloat16 as it lies in memory: it widens to float, which is rounded to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits;

  operator float() const {
    const std::uint32_t wide = std::uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }

  void operator=(float value) {
    bits = value != value ? std::uint16_t(0x7fc0) : of_number(value).bits;
  }

  // What a float that is not NaN is rounded to.
  static BFloat16 of_number(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    return {std::uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
};

// The scalar function of a kernel over n elements, every operand dense: tensors of the block's
// dtype, parameters and their gradients of the compute type. `uniform`: the parameters have one
// value for all n elements.
using Block = void (*)(std::int64_t n, const void* const* inputs, void* const* outputs,
                       const double* numbers, bool uniform);

// of_16_bits: of float32 that will be stored in 16 bits.
struct Blocks {
  Block float32, of_16_bits, bfloat16, float64;
};

// What the results of a first try are looked at by, a part of a block at a time: their sizes as
// integers, in the same order. NaN is greater than infinity.
inline std::uint32_t size_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffffu;
}

inline std::uint64_t size_bits(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffffffffffffu;
}

template <typename U, typename... T> U largest_of(U size, T... values) {
  ((size = size < size_bits(values) ? size_bits(values) : size), ...);
  return size;
}

template <typename U, typename... T> U least_of(U size, T... values) {
  ((size = size_bits(values) < size ? size_bits(values) : size), ...);
  return size;
}

// Less 1, of numbers but 0.
template <typename U, typename... T> U least_but_0_of(U size, T... values) {
  ((size = size_bits(values) - 1 < size ? size_bits(values) - 1 : size), ...);
  return size;
}

template <typename T> bool all_finite(decltype(size_bits(T())) largest) {
  return largest < size_bits(T(INFINITY));
}

template <typename T> T finite_or(T value, T other) {
  return size_bits(value) < size_bits(T(INFINITY)) ? value : other;
}

// Runs body(context, first, last) over parts of [0, count), in parallel.
using ParallelFor = void (*)(std::int64_t count, void (*body)(void*, std::int64_t, std::int64_t),
                             void* context);

// Runs the kernel of this index on the CPU.
void run_on_cpu(int kernel, const Call& call, ParallelFor parallel_for);

// Runs the kernel of this index on the current CUDA device, in this stream. Operands that are
// tensors of the formula have one dtype, parameters and their gradients the compute type.
// `workspace` of that many bytes is memory of the device, see `cuda_workspace`. Returns the
// cudaError_t of the launch.
int run_on_cuda(int kernel, const Call& call, void* workspace, void* stream);

// The bytes of workspace that a call needs for the partial sums of its reduced outputs.
std::int64_t cuda_workspace(int kernel, const Call& call);

// The package's own, see ops.cpp: the namespace of its ops, and its kernels.
extern const char* const kNamespace;
extern const Kernel kKernels[];
extern const int kKernelCount;

// The blocks of its kernels, in the same order.
extern const Blocks kBlocks[];

}  // namespace autofn
