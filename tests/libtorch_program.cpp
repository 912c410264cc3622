// What tests/test_libtorch.py builds: generated formulas in a LibTorch program. Prints a line per
// tensor, its name and its values in double, to be compared with the Python ops.
#include <cstdio>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "blend/blend.hpp"
#include "prelu/prelu.hpp"
#include "relu/relu.hpp"
#include "swish/swish.hpp"

using at::Tensor;
using torch::autograd::grad;
using torch::autograd::variable_list;

namespace {

void show(const std::string& name, const Tensor& tensor) {
  std::printf("%s", name.c_str());
  if (!tensor.defined()) std::printf(" undefined");
  else {
    const Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) std::printf(" %.17g", flat.data_ptr<double>()[i]);
  }
  std::printf("\n");
}

template <typename F>
void refused(const std::string& name, F&& call) {
  try {
    call();
    std::printf("%s no error\n", name.c_str());
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::printf("%s %s\n", name.c_str(), text.substr(0, text.find('\n')).c_str());
  }
}

Tensor values(at::IntArrayRef shape, double first, double last, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::linspace(first, last, count, at::kDouble).reshape(shape).to(dtype);
}

Tensor leaf(at::IntArrayRef shape, double first, double last, at::ScalarType dtype) {
  return values(shape, first, last, dtype).requires_grad_();
}

// Outputs, gradients, and the gradients of those, along cotangents 1, 2, ... / 8.
void show_all(const std::string& name, const variable_list& outputs, const variable_list& inputs) {
  variable_list cotangents, along, moving;
  for (size_t k = 0; k < outputs.size(); ++k) {
    show(name + ".output" + std::to_string(k), outputs[k]);
    cotangents.push_back(values(outputs[k].sizes(), 1, k + 2, outputs[k].scalar_type()));
  }
  const auto grads = grad(outputs, inputs, cotangents, true, true, true);
  for (size_t k = 0; k < grads.size(); ++k) {
    show(name + ".grad" + std::to_string(k), grads[k]);
    if (!grads[k].defined() || !grads[k].requires_grad()) continue;
    moving.push_back(grads[k]);
    along.push_back(values(grads[k].sizes(), -1, k + 1, grads[k].scalar_type()));
  }
  if (moving.empty()) return;
  const auto seconds = grad(moving, inputs, along, true, false, true);
  for (size_t k = 0; k < seconds.size(); ++k) {
    show(name + ".second" + std::to_string(k), seconds[k]);
  }
}

void show_dtype(const std::string& name, at::ScalarType dtype) {
  const Tensor x = leaf({3, 4, 5}, -4, 4, dtype);
  show_all("swish." + name, {autofn::swish(x, 1.5)}, {x});
  const Tensor weight = leaf({4}, 0.1, 0.5, at::kFloat);
  show_all("prelu." + name, {autofn::prelu(x, weight)}, {x, weight});
  const Tensor y = leaf({5}, -1, 1, dtype), bias = leaf({3, 1, 1}, 0, 2, dtype);
  const Tensor scale = leaf({1}, 0.75, 0.75, dtype), shift = leaf({5}, 0, 1, dtype);
  const auto with = autofn::blend(x, y, bias, scale, shift, 1.5);
  show_all("blend." + name, {with.value, with.gate}, {x, y, bias, scale, shift});
  const auto without = autofn::blend(x, y, {}, scale, shift, 1.5, "hard");
  show_all("without." + name, {without.value, without.gate}, {x, y, scale, shift});
}

}  // namespace

int main() {
  show_dtype("float64", at::kDouble);
  show_dtype("float32", at::kFloat);
  show_dtype("bfloat16", at::kBFloat16);
  show_dtype("float16", at::kHalf);

  // Only what is needed has a gradient, and unused outputs are no matter.
  const Tensor x = leaf({2, 3}, -2, 2, at::kFloat), weight = values({3}, 0.1, 0.5, at::kFloat);
  show("one_needed", grad({autofn::prelu(x, weight).sum()}, {x})[0]);
  const Tensor one = at::ones({1}), none = at::zeros({1});
  show("one_used", grad({autofn::blend(x, x, {}, one, none).gate.sum()}, {x})[0]);
  std::printf("plain %d\n", int(autofn::swish(x.detach()).requires_grad()));
  const auto direct = autofn::SwishFunction::apply(x.t(), 2.0);
  show("apply", direct);
  show("expanded", grad({direct.sum()}, {x})[0]);

  refused("integers", [&] { autofn::swish(at::ones({2}, at::kInt)); });
  refused("device", [&] { autofn::swish(x.to(at::kMeta)); });
  refused("undefined", [&] { autofn::prelu(x, Tensor()); });
  refused("channels", [&] { autofn::prelu(x, at::ones({3, 1})); });
  refused("shapes", [&] { autofn::prelu(x, at::ones({4})); });
  refused("choice", [&] { autofn::blend(x, x, {}, weight[0], weight, 1, "neither"); });
  refused("kernels", [&] { autofn::relu(x); });
  refused("third", [&] {
    Tensor y = autofn::swish(x).sum();
    for (int order = 0; order < 3; ++order) y = grad({y}, {x}, {}, true, true)[0].sum();
  });
  return 0;
}
