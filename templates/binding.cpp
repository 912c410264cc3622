// The kernels as PyTorch ops, through libtorch's stable C interface: the same for every
// formula. Works out the iteration space of a call, allocates its outputs and runs the kernel.
//
// Compiled with AUTOFN_CUDA it gives the ops that the CPU's library has defined a CUDA
// implementation.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include "kernel.h"

namespace autofn {
namespace {

using std::int64_t;

void check(AOTITorchError error) {
  if (error != 0) throw std::runtime_error("autofn: PyTorch refused a call");
}

// --- dtypes ------------------------------------------------------------------------------------

Dtype to_dtype(std::int32_t torch_dtype) {
  static const std::int32_t known[] = {aoti_torch_dtype_float64(), aoti_torch_dtype_float32(),
                                       aoti_torch_dtype_bfloat16(), aoti_torch_dtype_float16()};
  for (int k = 0; k < 4; ++k) {
    if (known[k] == torch_dtype) return Dtype(k);
  }
  throw std::runtime_error("autofn: tensors are float64, float32, bfloat16 or float16");
}

// --- tensors -----------------------------------------------------------------------------------

// A tensor as the dispatcher handed it over: freed in the end, whatever happens.
struct Owned {
  AtenTensorHandle handle = nullptr;
  Owned() = default;
  explicit Owned(AtenTensorHandle given) : handle(given) {}
  Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() {
    if (handle) aoti_torch_delete_tensor_object(handle);
  }
  AtenTensorHandle release() { return std::exchange(handle, nullptr); }
};

bool is_contiguous(const Owned& tensor) {
  bool found;
  check(aoti_torch_is_contiguous(tensor.handle, &found));
  return found;
}

void* data_of(const Owned& tensor) {
  const void* data;
  check(torch_get_const_data_ptr(tensor.handle, &data));
  return const_cast<void*>(data);
}

// The size of a tensor along dimension d of a space of `dims` dimensions.
template <typename Shape>
int64_t size_along(const Shape& shape, int d, int dims) {
  const int64_t at = d - (dims - shape.dim - shape.after);
  return at < 0 || at >= shape.dim ? 1 : shape.sizes[at];
}

struct View {
  int64_t dim;
  int64_t after = 0;  // dimensions of size 1 that follow, of a parameter
  int64_t* sizes;
  int64_t* strides;
  std::int32_t dtype, device, index;

  explicit View(AtenTensorHandle tensor) {
    check(aoti_torch_get_dim(tensor, &dim));
    check(aoti_torch_get_sizes(tensor, &sizes));
    check(aoti_torch_get_strides(tensor, &strides));
    check(aoti_torch_get_dtype(tensor, &dtype));
    check(aoti_torch_get_device_type(tensor, &device));
    check(aoti_torch_get_device_index(tensor, &index));
  }
  View() = default;
  bool same_layout(const View& other) const {
    return dim == other.dim && after == other.after &&
           std::equal(sizes, sizes + dim, other.sizes) &&
           std::equal(strides, strides + dim, other.strides);
  }
  // Size and stride along dimension d of a space of `dims` dimensions.
  int64_t size(int d, int dims) const { return size_along(*this, d, dims); }
  int64_t stride(int d, int dims) const {
    return size(d, dims) == 1 ? 0 : strides[d - (dims - dim - after)];
  }
};

// The shape and dtype of an output.
struct Like {
  int64_t dim;
  const int64_t* sizes;
  std::int32_t dtype;
  int64_t after = 0;
  int64_t size(int d, int dims) const { return size_along(*this, d, dims); }
};

// A parameter as users give it, of one element or along dimension `place` of an output of `dims`
// dimensions, broadcasts against the output with these dimensions of size 1 after it.
template <typename Shape>
int64_t dims_after(const Shape& shape, int place, int64_t dims) {
  const bool along_one = place != kTensor && place != kScalar && shape.dim == 1;
  if (!along_one || shape.sizes[0] == 1 || place < -dims || place >= dims) return 0;
  return place < 0 ? -1 - place : dims - 1 - place;
}

// --- the iteration space -------------------------------------------------------------------------

struct Space {
  int dims = 0;
  int64_t sizes[kMaxDims];
  int order[kMaxDims];  // of the dimensions in memory, outermost first
  int64_t elements = 1;
};

// Gives parameters their place in an output that has the dimensions of the tensors.
Space broadcast(View* inputs, const int* places, int count) {
  Space space;
  for (int k = 0; k < count; ++k) {
    if (places[k] == kTensor) space.dims = std::max<int>(space.dims, int(inputs[k].dim));
  }
  const int tensors = space.dims;
  for (int k = 0; k < count; ++k) {
    View& input = inputs[k];
    input.after = dims_after(input, places[k], tensors);
    // A parameter of one element adds no dimension.
    const auto is_one = [](int64_t size) { return size == 1; };
    if (std::all_of(input.sizes, input.sizes + input.dim, is_one)) continue;
    space.dims = std::max<int>(space.dims, int(input.dim + input.after));
  }
  if (space.dims > kMaxDims) {
    throw std::runtime_error("autofn: tensors have at most " + std::to_string(kMaxDims) +
                             " dimensions");
  }
  for (int d = 0; d < space.dims; ++d) {
    int64_t size = 1;
    for (int k = 0; k < count; ++k) {
      const int64_t mine = inputs[k].size(d, space.dims);
      if (mine == 1 || mine == size) continue;
      if (size != 1) {
        throw std::runtime_error("The size of tensor a (" + std::to_string(size) +
                                 ") must match the size of tensor b (" + std::to_string(mine) +
                                 ") at non-singleton dimension " + std::to_string(d));
      }
      size = mine;
    }
    space.sizes[d] = size;
    space.elements *= size;
  }
  return space;
}

// The order of TensorIterator: dimensions by falling strides of the first input that tells, and
// as they stand where none does. So outputs keep the memory format of the inputs.
void order_dimensions(Space& space, const View* inputs, int count) {
  int* order = space.order;
  for (int d = 0; d < space.dims; ++d) order[d] = d;
  const auto inside = [&](int a, int b) {  // whether a belongs inside b: 1, -1, or 0, no one tells
    for (int k = 0; k < count; ++k) {
      const int64_t first = inputs[k].stride(a, space.dims);
      const int64_t second = inputs[k].stride(b, space.dims);
      if (first == 0 || second == 0) continue;
      if (first != second) return first < second ? 1 : -1;
      if (space.sizes[a] != space.sizes[b]) return space.sizes[a] < space.sizes[b] ? 1 : -1;
    }
    return 0;
  };
  // Insertion from the inside out, past dimensions that do not tell.
  for (int i = space.dims - 2; i >= 0; --i) {
    int at = i;
    for (int other = i + 1; other < space.dims; ++other) {
      const int found = inside(order[at], order[other]);
      if (found > 0) {
        std::swap(order[at], order[other]);
        at = other;
      } else if (found < 0) {
        break;
      }
    }
  }
}

// The strides of a dense output of these sizes in the space's order.
void dense_strides(const Space& space, const Like& like, int64_t* strides) {
  int64_t stride = 1;
  const int absent = int(space.dims - like.dim - like.after);
  std::fill(strides, strides + like.dim, 1);
  for (int i = space.dims - 1; i >= 0; --i) {
    const int at = space.order[i] - absent;
    if (at < 0 || at >= like.dim) continue;
    strides[at] = stride;
    stride *= std::max<int64_t>(1, like.sizes[at]);
  }
}

// The dimensions of a call: those of size 1 left out, neighbours merged where every operand runs
// on. Its operands have strides along the space's dimensions in its order.
void merge_dimensions(Call& call, const Space& space, const Kernel& kernel) {
  Operand* operands[2 * kMaxOperands];
  int count = 0, last = -1;
  for (int k = 0; k < kernel.inputs; ++k) operands[count++] = &call.inputs[k];
  for (int k = 0; k < kernel.outputs; ++k) operands[count++] = &call.outputs[k];
  for (int i = 0; i < space.dims; ++i) {
    const int64_t size = space.sizes[space.order[i]];
    if (size == 1) continue;
    bool runs_on = last >= 0;
    for (int k = 0; k < count && runs_on; ++k) {
      runs_on = operands[k]->strides[last] == operands[k]->strides[i] * size;
    }
    if (!runs_on) call.sizes[++last] = 1;
    call.sizes[last] *= size;
    for (int k = 0; k < count; ++k) operands[k]->strides[last] = operands[k]->strides[i];
  }
  call.dims = last + 1;
}

// --- a call ------------------------------------------------------------------------------------

void torch_parallel(int64_t count, void (*body)(void*, int64_t, int64_t), void* context) {
  struct Bound {
    void (*body)(void*, int64_t, int64_t);
    void* context;
  } bound = {body, context};
  check(torch_parallel_for(0, count, 1, [](int64_t first, int64_t last, void* given) {
    const Bound* mine = static_cast<const Bound*>(given);
    mine->body(mine->context, first, last);
  }, &bound));
}

Owned empty(const int64_t* sizes, const int64_t* strides, int64_t dim, std::int32_t dtype,
            const View& at) {
  Owned made;
  check(aoti_torch_empty_strided(dim, sizes, strides, dtype, at.device, at.index, &made.handle));
  return made;
}

#ifdef AUTOFN_CUDA

// A tensor of another dtype makes way for a copy that has this one.
void convert(Owned& tensor, std::int32_t dtype) {
  const View view(tensor.handle);
  if (view.dtype == dtype) return;
  int64_t strides[kMaxDims], stride = 1;
  for (int d = int(view.dim) - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, view.sizes[d]);
  }
  Owned made = empty(view.sizes, strides, view.dim, dtype, view);
  check(aoti_torch_copy_(made.handle, tensor.handle, 0));
  tensor = std::move(made);
}

// The dtype of a tensor of the formula, and of a parameter, in a CUDA kernel.
std::int32_t cuda_dtype(int place, std::int32_t storage) {
  const bool wide = to_dtype(storage) == Dtype::float64;
  return place == kTensor || wide ? storage : aoti_torch_dtype_float32();
}

#endif

void run(int number, const Call& call, const View& at) {
#ifdef AUTOFN_CUDA
  CUDAGuardHandle guard;
  check(aoti_torch_create_cuda_guard(at.index, &guard));
  void* stream = nullptr;
  int error = 0;
  try {
    check(aoti_torch_get_current_cuda_stream(at.index, &stream));
    const int64_t bytes[] = {cuda_workspace(number, call)}, stride[] = {1};
    Owned workspace;
    void* memory = nullptr;
    if (bytes[0] > 0) {
      workspace = empty(bytes, stride, 1, aoti_torch_dtype_uint8(), at);
      check(torch_get_mutable_data_ptr(workspace.handle, &memory));
    }
    error = run_on_cuda(number, call, memory, stream);
  } catch (...) {
    aoti_torch_delete_cuda_guard(guard);
    throw;
  }
  aoti_torch_delete_cuda_guard(guard);
  if (error != 0) throw std::runtime_error("autofn: CUDA error " + std::to_string(error));
#else
  (void)at;
  run_on_cpu(number, call, torch_parallel);
#endif
}

const char* device_name(std::int32_t device) { return device == 0 ? "cpu" : "cuda"; }

void check_devices(const View* inputs, int count) {
  for (int k = 1; k < count; ++k) {
    if (inputs[k].device == inputs[0].device && inputs[k].index == inputs[0].index) continue;
    throw std::runtime_error(
        "Expected all tensors to be on the same device, but found at least two devices, " +
        (device_name(inputs[0].device) + (":" + std::to_string(inputs[0].index))) + " and " +
        (device_name(inputs[k].device) + (":" + std::to_string(inputs[k].index))) + "!");
  }
}

struct Outputs {
  const Like* likes;   // null: of the broadcast shape and of `dtype`
  int64_t wanted;      // a bit per output; others become tensors of no elements
  std::int32_t dtype;  // of the formula's outputs, which decides what is computed in
};

// Allocates output k, and says where it lies along the dimensions of the space.
Owned allocate(const Space& space, const Like& like, const View& at, Operand& operand) {
  int64_t strides[kMaxDims];
  dense_strides(space, like, strides);
  Owned made = empty(like.sizes, strides, like.dim, like.dtype, at);
  for (int i = 0; i < space.dims; ++i) {
    const int d = space.order[i], absent = int(space.dims - like.dim - like.after);
    const bool kept = like.size(d, space.dims) != 1;
    if (kept && like.size(d, space.dims) != space.sizes[d]) {
      throw std::runtime_error("autofn: a gradient's shape does not broadcast to the output's");
    }
    operand.strides[i] = kept ? strides[d - absent] : 0;
  }
  return made;
}

void convert_all(Owned* results, const std::int32_t* dtypes, int count) {
#ifdef AUTOFN_CUDA
  for (int k = 0; k < count; ++k) convert(results[k], dtypes[k]);
#else
  (void)results, (void)dtypes, (void)count;  // already as asked
#endif
}

// Runs kernel `number` and returns its outputs.
void call_kernel(int number, Owned* tensors, const double* numbers, const Outputs& outputs,
                 Owned* results) {
  const Kernel& kernel = kKernels[number];
#ifdef AUTOFN_CUDA
  for (int k = 0; k < kernel.inputs; ++k) {
    convert(tensors[k], cuda_dtype(kernel.places[k], outputs.dtype));
  }
#endif
  View inputs[kMaxOperands];
  for (int k = 0; k < kernel.inputs; ++k) inputs[k] = View(tensors[k].handle);
  check_devices(inputs, kernel.inputs);
  const View& first = inputs[0];

  Call call;
  call.numbers = numbers;
  call.compute =
      to_dtype(outputs.dtype) == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  for (int k = 0; k < kernel.inputs; ++k) {
    call.inputs[k].dtype = to_dtype(inputs[k].dtype);
    call.inputs[k].data = data_of(tensors[k]);
  }

  // Most calls: contiguous inputs of one shape, and outputs like them.
  bool flat = !outputs.likes && is_contiguous(tensors[0]);
  for (int k = 1; k < kernel.inputs && flat; ++k) flat = inputs[k].same_layout(first);
  Space space;
  if (flat) {
    for (int d = 0; d < first.dim; ++d) space.elements *= first.sizes[d];
  } else {
    space = broadcast(inputs, kernel.places, kernel.inputs);
    order_dimensions(space, inputs, kernel.inputs);
    for (int k = 0; k < kernel.inputs; ++k) {
      for (int i = 0; i < space.dims; ++i) {
        call.inputs[k].strides[i] = inputs[k].stride(space.order[i], space.dims);
      }
    }
  }
  call.elements = space.elements;

  std::int32_t dtypes[kMaxOperands];
  for (int k = 0; k < kernel.outputs; ++k) {
    Operand& operand = call.outputs[k];
    const bool wanted = outputs.wanted >> k & 1;
    Like like = outputs.likes ? outputs.likes[k]
                : flat        ? Like{first.dim, first.sizes, outputs.dtype}
                              : Like{space.dims, space.sizes, outputs.dtype};
    if (!flat) like.after = dims_after(like, kernel.places[kernel.inputs + k], space.dims);
    dtypes[k] = like.dtype;
#ifdef AUTOFN_CUDA
    like.dtype = cuda_dtype(kernel.places[kernel.inputs + k], outputs.dtype);
#endif
    if (!wanted) {
      const int64_t none[] = {0}, stride[] = {1};
      results[k] = empty(none, stride, 1, like.dtype, first);
      std::fill(operand.strides, operand.strides + space.dims, 0);
    } else if (flat) {
      results[k] = empty(first.sizes, first.strides, first.dim, like.dtype, first);
    } else {
      results[k] = allocate(space, like, first, operand);
      if (call.elements == 0) check(aoti_torch_zero_(results[k].handle));  // an empty sum
    }
    operand.dtype = to_dtype(like.dtype);
    operand.data = wanted ? data_of(results[k]) : nullptr;
  }
  if (call.elements == 0) return convert_all(results, dtypes, kernel.outputs);

  if (flat) {
    call.dims = call.elements > 1;
    call.sizes[0] = call.elements;
    for (int k = 0; k < kernel.inputs; ++k) call.inputs[k].strides[0] = 1;
    for (int k = 0; k < kernel.outputs; ++k) call.outputs[k].strides[0] = 1;
  } else {
    merge_dimensions(call, space, kernel);
  }
  run(number, call, first);
  convert_all(results, dtypes, kernel.outputs);
}

// --- ops ---------------------------------------------------------------------------------------

template <typename T>
T as(StableIValue value) {
  T result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// Per output, from a list of its dimensions, dtype and sizes one after the other; false if the list
// is empty. The list is freed.
bool read_likes(StableListHandle given, int count, int64_t* memory, Like* likes) {
  const std::unique_ptr<StableListOpaque, AOTITorchError (*)(StableListHandle)> list(
      given, torch_delete_list);
  size_t size;
  check(torch_list_size(given, &size));
  if (size > kMaxOperands * (kMaxDims + 2)) throw std::runtime_error("autofn: too many likes");
  for (size_t i = 0; i < size; ++i) {
    StableIValue value;
    check(torch_list_get_item(given, i, &value));
    memory[i] = as<int64_t>(value);
  }
  if (size == 0) return false;
  for (int k = 0; k < count; ++k) {
    likes[k] = {memory[0], memory + 2, std::int32_t(memory[1])};
    memory += 2 + likes[k].dim;
  }
  return true;
}

// The dispatcher's call of an op: arguments on the stack, and results in their place.
void call_op(int number, StableIValue* stack) {
  const Kernel& kernel = kKernels[number];
  Owned tensors[kMaxOperands], results[kMaxOperands];
  double numbers[kMaxOperands];
  StableIValue* const results_at = stack;
  for (int k = 0; k < kernel.inputs; ++k) tensors[k] = Owned(as<AtenTensorHandle>(*stack++));
  for (int k = 0; k < kernel.numbers; ++k) numbers[k] = as<double>(*stack++);
  int64_t memory[kMaxOperands * (kMaxDims + 2)];
  Like likes[kMaxOperands];
  Outputs outputs = {nullptr, ~int64_t(0), View(tensors[0].handle).dtype};
  if (kernel.takes == Takes::dtype) outputs.dtype = std::int32_t(as<int64_t>(stack[0]));
  if (kernel.takes == Takes::likes) {
    outputs.wanted = as<int64_t>(stack[0]);
    const auto given = as<StableListHandle>(stack[1]);
    if (read_likes(given, kernel.outputs, memory, likes)) outputs.likes = likes;
  }
  call_kernel(number, tensors, numbers, outputs, results);
  for (int k = 0; k < kernel.outputs; ++k) {
    const AtenTensorHandle result = results[k].release();
    std::memcpy(&results_at[k], &result, sizeof result);
  }
}

template <int number>
void boxed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  call_op(number, stack);
}

using Boxed = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

constexpr int kMaxKernels = 64;

template <int... numbers>
const Boxed* boxed_kernels(std::integer_sequence<int, numbers...>) {
  static const Boxed table[] = {boxed<numbers>...};
  return table;
}

// Registers the ops when the library is loaded.
struct Registration {
  Registration() {
    const Boxed* table = boxed_kernels(std::make_integer_sequence<int, kMaxKernels>());
    TorchLibraryHandle library;
#ifdef AUTOFN_CUDA
    const char* key = "CUDA";
#else
    const char* key = "CPU";
    check(aoti_torch_library_init_fragment(kNamespace, __FILE__, __LINE__, &library));
    for (int k = 0; k < kKernelCount; ++k) {
      // A program may have these sources twice: the first to be loaded has defined their ops.
      if (aoti_torch_library_def(library, kKernels[k].schema) != 0) return;
    }
#endif
    check(aoti_torch_library_init_impl(kNamespace, key, __FILE__, __LINE__, &library));
    for (int k = 0; k < kKernelCount; ++k) {
      const std::string schema = kKernels[k].schema;
      const std::string name = schema.substr(0, schema.find('('));
      check(torch_library_impl(library, name.c_str(), table[k], TORCH_TARGET_VERSION));
    }
  }
} registration;

}  // namespace
}  // namespace autofn
