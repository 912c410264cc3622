// Generated formulas in C++: what every package's own header stands on. The same in each of them.
//
// A formula is a table: per variant the ops of its three passes, each with what it takes and gives.
// The ops are the compiled kernels in the dispatcher: their sources are not needed here.
#ifndef AUTOFN_AUTOGRAD_1
#define AUTOFN_AUTOGRAD_1

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace autofn {
namespace autograd {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// How an input lies in the output: a tensor that broadcasts, a learnable scalar, or the dimension
// that a per-channel parameter runs along.
constexpr int kTensor = std::numeric_limits<int>::max();
constexpr int kScalar = kTensor - 1;

// Values have places: inputs 0 to n, outputs, gradients of the outputs, directions of the inputs.
struct Op {
  const char* name = nullptr;  // none: a user's own gradient is none, or nothing of second order
  bool alike = false;          // all its outputs are like its first tensor
  std::vector<int> takes, numbers, gives;
};

struct Variant {
  Op forward, backward, double_backward;
};

struct Saved {
  int place;
  std::vector<int> needed_for;  // inputs whose gradient is computed from it
};

struct Formula {
  const char* name;
  const char* ops;  // the namespace of its ops
  std::vector<const char*> inputs;
  std::vector<int> layout;
  int outputs;
  std::vector<Saved> saved;
  std::vector<Variant> variants;

  int count() const { return int(inputs.size()); }
  int grad(int output) const { return count() + outputs + output; }
  int direction(int input) const { return count() + 2 * outputs + input; }
  int places() const { return 2 * count() + 2 * outputs; }
};

struct Like {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// A call, as its backward and that one's backward need it again.
struct Call : torch::CustomClassHolder {
  const Formula* formula = nullptr;
  const Variant* variant = nullptr;
  std::vector<double> numbers;
  std::vector<bool> given;                        // per input, whether it is there
  std::vector<std::vector<std::int64_t>> shapes;  // per input its own
  std::vector<Like> likes;                        // per place, as aligned
  std::vector<int> places;                        // of the tensors of a Function
  std::vector<bool> needed;                       // per input, whether its gradient is wanted
};

using CallPtr = c10::intrusive_ptr<Call>;

inline CallPtr call_of(AutogradContext* ctx) {
  return CallPtr::reclaim_copy(static_cast<Call*>(ctx->saved_data["call"].toCapsule().get()));
}

inline void keep(AutogradContext* ctx, const CallPtr& call, variable_list tensors) {
  ctx->set_materialize_grads(false);
  ctx->saved_data["call"] = c10::IValue::make_capsule(call);
  ctx->save_for_backward(std::move(tensors));
}

inline variable_list defined(const variable_list& tensors) {
  variable_list found;
  for (const Tensor& each : tensors) {
    if (each.defined()) found.push_back(each);
  }
  return found;
}

// --- what kernels take ---------------------------------------------------------------------------

inline c10::OperatorHandle find(const Formula& formula, const Op& op) {
  const std::string name = std::string(formula.ops) + "::" + op.name;
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  TORCH_CHECK(found, formula.name, ": its kernels are not loaded: compile ", formula.name,
              "_ops.cc into the program, or load the library that `autofn build` makes");
  return *found;
}

inline void check(const Formula& formula, const Op& op, const char* name, const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  TORCH_CHECK(dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 ||
                  dtype == at::kHalf,
              formula.name, ": ", name, " is of ", dtype,
              "; kernels take float64, float32, bfloat16 and float16");
  TORCH_CHECK(tensor.layout() == at::kStrided, formula.name, ": ", name, " is of layout ",
              tensor.layout(), "; kernels take strided tensors");
  const auto handle = find(formula, op);
  const auto device = tensor.device();
  const bool served =
      (device.is_cpu() && handle.hasKernelForDispatchKey(c10::DispatchKey::CPU)) ||
      (device.is_cuda() && handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA));
  TORCH_CHECK(served, formula.name, ": ", name, " is on ", device,
              ", for which no kernels are loaded");
}

// The dtype of the outputs: of the tensors, 0-dim ones only where there are no others.
inline at::ScalarType result_type(const Formula& formula, const variable_list& inputs) {
  std::optional<at::ScalarType> sized, scalar;
  for (int k = 0; k < formula.count(); ++k) {
    if (formula.layout[k] != kTensor || !inputs[k].defined()) continue;
    auto& found = inputs[k].dim() > 0 ? sized : scalar;
    const auto mine = inputs[k].scalar_type();
    found = found ? c10::promoteTypes(*found, mine) : mine;
  }
  return sized ? *sized : *scalar;
}

// An input as a tensor that broadcasts against an output of `dims` dimensions.
inline Tensor aligned(const Formula& formula, int input, const Tensor& tensor, std::int64_t dims) {
  const int dim = formula.layout[input];
  if (dim == kTensor || !tensor.defined()) return tensor;
  if (dim == kScalar || dim < -dims || dim >= dims) {
    TORCH_CHECK(tensor.numel() == 1, formula.name, ": ", formula.inputs[input],
                " has 1 element here, not ", tensor.numel());
    return tensor.reshape({});
  }
  TORCH_CHECK(tensor.dim() <= 1, formula.name, ": ", formula.inputs[input],
              " has 1 dimension, not ", tensor.dim());
  std::vector<std::int64_t> shape(dims - (dim < 0 ? dim + dims : dim), 1);
  shape[0] = tensor.numel();
  return tensor.reshape(shape);
}

// Calls an op with the values at its places; `rest` is what it takes after tensors and numbers.
inline variable_list run(const Call& call, const Op& op, const variable_list& values,
                         std::vector<c10::IValue> rest) {
  torch::jit::Stack stack;
  for (const int place : op.takes) stack.emplace_back(values[place]);
  for (const int number : op.numbers) stack.emplace_back(call.numbers[number]);
  for (auto& each : rest) stack.push_back(std::move(each));
  find(*call.formula, op).callBoxed(stack);
  variable_list found;
  for (auto& each : stack) found.push_back(std::move(each).toTensor());
  return found;
}

// Runs an op whose outputs are gradients, of those places that `wanted` has; others are left out.
inline variable_list gradients(const Call& call, const Op& op, const variable_list& values,
                               const std::vector<bool>& wanted) {
  std::int64_t needs = 0;
  std::vector<std::int64_t> likes;
  const Tensor& first = values[op.takes[0]];
  bool all_alike = true;
  for (std::size_t k = 0; k < op.gives.size(); ++k) {
    if (wanted[op.gives[k]]) needs |= std::int64_t(1) << k;
    const Like& like = call.likes[op.gives[k]];
    all_alike = all_alike && first.sizes() == like.shape && first.scalar_type() == like.dtype;
    likes.push_back(std::int64_t(like.shape.size()));
    likes.push_back(std::int64_t(like.dtype));
    likes.insert(likes.end(), like.shape.begin(), like.shape.end());
  }
  if (all_alike) likes.clear();
  std::vector<c10::IValue> rest;
  if (!op.alike) rest = {needs, likes};
  const variable_list all = run(call, op, values, std::move(rest));
  variable_list found;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (needs >> k & 1) found.push_back(all[k]);
  }
  return found;
}

// The tensors of a Function at their places.
inline variable_list placed(const Call& call, at::TensorList tensors) {
  variable_list values(call.formula->places());
  for (std::size_t k = 0; k < tensors.size(); ++k) values[call.places[k]] = tensors[k];
  return values;
}

inline std::vector<bool> marked(const Formula& formula, const std::vector<int>& places) {
  std::vector<bool> found(formula.places());
  for (const int place : places) found[place] = true;
  return found;
}

// --- second order --------------------------------------------------------------------------------

struct DoubleBackward : torch::autograd::Function<DoubleBackward> {
  // The gradients at the places that `wanted` has, from all that the kernel takes.
  static variable_list forward(AutogradContext* ctx, CallPtr call, std::vector<bool> wanted,
                               at::TensorList tensors) {
    ctx->saved_data["name"] = std::string(call->formula->name);
    return gradients(*call, call->variant->double_backward, placed(*call, tensors), wanted);
  }

  static variable_list backward(AutogradContext* ctx, variable_list) {
    TORCH_CHECK(false, ctx->saved_data["name"].toStringRef(),
                ": third derivatives are not compiled; the Python op has them");
  }
};

struct Backward : torch::autograd::Function<Backward> {
  static variable_list forward(AutogradContext* ctx, CallPtr call, at::TensorList tensors) {
    const Formula& formula = *call->formula;
    variable_list values = placed(*call, tensors);
    keep(ctx, call, tensors.vec());
    // What was not saved is needed by no gradient that is wanted, but has a place.
    for (const int place : call->variant->backward.takes) {
      if (!values[place].defined()) values[place] = values[formula.grad(0)];
    }
    std::vector<bool> wanted = call->needed;
    wanted.resize(formula.places());
    return gradients(*call, call->variant->backward, values, wanted);
  }

  static variable_list backward(AutogradContext* ctx, variable_list directions) {
    const CallPtr first = call_of(ctx);
    const Formula& formula = *first->formula;
    const Op& op = first->variant->double_backward;
    variable_list found(1 + first->places.size());
    if (defined(directions).empty()) return found;
    TORCH_CHECK(op.name, formula.name,
                ": its second derivatives are not compiled; the Python op has them");

    variable_list values = placed(*first, ctx->get_saved_variables());
    std::size_t next = 0;
    for (const int input : first->variant->backward.gives) {
      if (first->needed[input]) values[formula.direction(input)] = directions[next++];
    }
    const Tensor& like = values[formula.grad(0)];
    auto call = c10::make_intrusive<Call>(*first);
    call->places.clear();
    variable_list tensors;
    for (const int place : op.takes) {
      Tensor& value = values[place];
      if (!value.defined() && place >= formula.direction(0)) {
        const Like& mine = call->likes[place - formula.direction(0)];
        value = at::zeros(mine.shape, like.options().dtype(mine.dtype));
      }
      if (!value.defined()) value = like;  // not saved: of a gradient that was not wanted
      call->places.push_back(place);
      tensors.push_back(value);
    }
    std::vector<bool> wanted(formula.places());
    for (std::size_t k = 0; k < first->places.size(); ++k) {
      wanted[first->places[k]] = ctx->needs_input_grad(k);
    }
    const auto given = marked(formula, op.gives);
    bool any = false;
    for (int place = 0; place < formula.places(); ++place) {
      wanted[place] = wanted[place] && given[place];
      any = any || wanted[place];
    }
    if (!any) return found;
    const variable_list seconds = DoubleBackward::apply(call, wanted, at::TensorList(tensors));
    next = 0;
    for (const int place : op.gives) {
      if (!wanted[place]) continue;
      const auto at = std::find(first->places.begin(), first->places.end(), place);
      found[1 + (at - first->places.begin())] = seconds[next++];
    }
    return found;
  }
};

// --- first order ---------------------------------------------------------------------------------

// The forward of a formula's Function.
inline variable_list forward(AutogradContext* ctx, const Formula& formula, int variant,
                             const variable_list& inputs, std::vector<double> numbers) {
  auto call = c10::make_intrusive<Call>();
  call->formula = &formula;
  call->variant = &formula.variants[variant];
  call->numbers = std::move(numbers);
  const Op& op = call->variant->forward;
  std::int64_t dims = 0;
  for (int k = 0; k < formula.count(); ++k) {
    call->given.push_back(inputs[k].defined());
    if (formula.layout[k] == kTensor && inputs[k].defined()) {
      dims = std::max(dims, inputs[k].dim());
    }
  }
  for (const int place : op.takes) check(formula, op, formula.inputs[place], inputs[place]);
  variable_list values = inputs;
  for (int k = 0; k < formula.count(); ++k) {
    values[k] = aligned(formula, k, inputs[k], dims);
    call->likes.emplace_back();
    call->shapes.emplace_back();
    if (!inputs[k].defined()) continue;
    call->shapes[k] = inputs[k].sizes().vec();
    call->likes[k] = {values[k].sizes().vec(), values[k].scalar_type()};
  }
  const auto dtype = result_type(formula, inputs);
  std::vector<c10::IValue> rest;
  if (!op.alike) rest = {std::int64_t(dtype)};
  const variable_list outputs = run(*call, op, values, std::move(rest));
  // Gradients are like the outputs.
  call->likes.resize(formula.places(), {outputs[0].sizes().vec(), dtype});

  variable_list saved;
  for (const Saved& each : formula.saved) {
    const bool needed =
        std::any_of(each.needed_for.begin(), each.needed_for.end(),
                    [&](int k) { return inputs[k].defined() && inputs[k].requires_grad(); });
    const bool input = each.place < formula.count();
    saved.push_back(!needed ? Tensor()
                    : input ? inputs[each.place]
                            : outputs[each.place - formula.count()]);
  }
  keep(ctx, call, std::move(saved));
  return outputs;
}

// The backward of a formula's Function: per input its gradient, or an undefined tensor.
inline variable_list backward(AutogradContext* ctx, const variable_list& grads) {
  const CallPtr first = call_of(ctx);
  const Formula& formula = *first->formula;
  const Op& op = first->variant->backward;
  variable_list found(formula.count());
  auto call = c10::make_intrusive<Call>(*first);
  call->needed.assign(formula.count(), false);
  std::size_t edge = 0;
  for (int k = 0; k < formula.count(); ++k) {
    if (first->given[k]) call->needed[k] = ctx->needs_input_grad(edge++);
  }
  const auto gives = marked(formula, op.gives);
  bool any = false;
  for (int k = 0; k < formula.count(); ++k) {
    call->needed[k] = call->needed[k] && gives[k];
    any = any || call->needed[k];
  }
  const variable_list known = defined(grads);
  if (!any || known.empty()) return found;

  variable_list tensors;
  for (int k = 0; k < formula.outputs; ++k) {
    call->places.push_back(formula.grad(k));
    tensors.push_back(grads[k].defined() ? grads[k] : at::zeros_like(known[0]));
  }
  const variable_list saved = ctx->get_saved_variables();
  for (std::size_t k = 0; k < saved.size(); ++k) {
    if (!saved[k].defined()) continue;
    const int place = formula.saved[k].place;
    call->places.push_back(place);
    tensors.push_back(place < formula.count()
                          ? aligned(formula, place, saved[k], known[0].dim())
                          : saved[k]);
  }
  const variable_list results = Backward::apply(call, at::TensorList(tensors));
  std::size_t next = 0;
  for (const int input : op.gives) {
    if (call->needed[input]) found[input] = results[next++].reshape(first->shapes[input]);
  }
  return found;
}

// For ops that stay in float32 under autocast.
inline Tensor to_float32(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const auto dtype = tensor.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  return half && at::autocast::is_autocast_enabled(tensor.device().type()) ? tensor.to(at::kFloat)
                                                                          : tensor;
}

}  // namespace autograd
}  // namespace autofn

#endif
