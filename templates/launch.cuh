// Runs a kernel on a call: which loop of loops.cuh, over which grid. The same for every
// formula. Launches only, and never waits, so that calls can be captured in CUDA graphs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

#include "loops.cuh"

namespace autofn {

// Elements of one launch of the loops that count in 32 bits: longer calls are cut.
constexpr std::int64_t kSlice = std::int64_t(1) << 30;

inline std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The least power of two that is not below `value`, up to `most`.
inline int power_of_two(std::int64_t value, int most) {
  int found = 1;
  while (found < value && found < most) found *= 2;
  return found;
}

inline std::int64_t size_of(Dtype dtype) {
  return dtype == Dtype::float64 ? 8 : dtype == Dtype::float32 ? 4 : 2;
}

// --- launches ------------------------------------------------------------------------------------

template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), std::int64_t blocks, cudaStream_t stream,
                   const A&... arguments) {
  if (blocks >= std::int64_t(1) << 31) return cudaErrorInvalidValue;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  const cudaError_t launched = cudaLaunchKernelEx(&config, kernel, arguments...);
  const cudaError_t last = cudaGetLastError();  // PyTorch is not to find it at its next call
  return launched != cudaSuccess ? launched : last;
}

// --- flat and strided ----------------------------------------------------------------------------

// Calls f with parts of the call that have at most kSlice elements, as long as it returns success.
template <typename F> cudaError_t sliced(const Call& call, const F& f) {
  if (call.elements <= kSlice) return f(call);
  const std::int64_t inner = call.elements / call.sizes[0];
  const std::int64_t step = std::max<std::int64_t>(1, kSlice / inner);
  for (std::int64_t first = 0; first < call.sizes[0]; first += step) {
    Call part = call;
    part.sizes[0] = std::min(step, call.sizes[0] - first);
    part.elements = part.sizes[0] * inner;
    for (Operand* operands : {part.inputs, part.outputs}) {
      for (Operand* it = operands; it < operands + kMaxOperands; ++it) {
        if (it->data == nullptr) continue;
        it->data = static_cast<char*>(it->data) + first * it->strides[0] * size_of(it->dtype);
        if (step == 1) std::copy(it->strides + 1, it->strides + kMaxDims, it->strides);
      }
    }
    if (step == 1) std::copy(part.sizes + 1, part.sizes + part.dims--, part.sizes);
    const cudaError_t error = sliced(part, f);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

inline bool is_dense(const Call& call, const Operand& operand) {
  std::int64_t stride = 1;
  for (int d = call.dims - 1; d >= 0; --d) {
    if (operand.strides[d] != stride) return false;
    stride *= call.sizes[d];
  }
  return true;
}

inline Divisor divisor(std::int64_t value) {
  std::uint32_t shift = 0;
  while ((std::int64_t(1) << shift) < value) ++shift;
  const std::uint64_t over = (std::uint64_t(1) << shift) - std::uint64_t(value);
  const std::uint64_t magic = (over << 32) / std::uint64_t(value) + 1;
  return {std::uint32_t(value), std::uint32_t(magic), shift};
}

template <typename Op> Layout<Op::kInputs> layout(const Call& call) {
  Layout<Op::kInputs> found = {};
  found.dims = std::max(call.dims, 1);
  found.sizes[0] = divisor(1);
  for (int d = 0; d < call.dims; ++d) found.sizes[d] = divisor(call.sizes[d]);
  for (int k = 0; k < Op::kInputs; ++k) {
    std::copy(call.inputs[k].strides, call.inputs[k].strides + call.dims, found.strides[k]);
    found.dense |= std::uint32_t(is_dense(call, call.inputs[k])) << k;
  }
  return found;
}

template <int N> bool is_aligned(const Operand& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % N == 0;
}

// Whether the flat loop can run a call; where its parameters lie then.
template <typename Op> bool is_flat(const Call& call, Channels<Op::kInputs>& channels) {
  constexpr int N = kWidth<typename Op::storage>;
  if (!std::all_of(call.outputs, call.outputs + Op::kOutputs, is_aligned<16>)) return false;
  int along = -1;  // the dimension
  for (int k = 0; k < Op::kInputs; ++k) {
    const Operand& input = call.inputs[k];
    if (Op::kTensorInputs >> k & 1) {
      if (!is_aligned<16>(input) || !is_dense(call, input)) return false;
      continue;
    }
    for (int d = 0; d < call.dims; ++d) {
      if (input.strides[d] == 0) continue;
      if (Op::kScalarInputs >> k & 1 || (along >= 0 && along != d)) return false;
      along = d;
      channels.steps[k] = input.strides[d];
    }
  }
  std::int64_t inner = call.elements, count = 1;
  if (along >= 0) {
    for (int d = 0; d <= along; ++d) inner /= call.sizes[d];
    count = call.sizes[along];
  }
  channels.packs = inner == 1;
  for (int k = 0; k < Op::kInputs && channels.packs; ++k) {
    const std::int64_t step = channels.steps[k];
    if (step != 0 && (step != 1 || !is_aligned<16>(call.inputs[k]))) return false;
  }
  if (along >= 0 && (channels.packs ? count : inner) % N != 0) return false;
  channels.inner = divisor(inner);
  channels.count = divisor(count);
  return true;
}

// A call of at most kSlice elements without reduced outputs.
template <typename Op> cudaError_t run_elementwise(const Call& call, cudaStream_t stream) {
  const Op op = Op::of(call);
  const std::uint32_t elements = std::uint32_t(call.elements);
  Channels<Op::kInputs> channels = {};
  if (is_flat<Op>(call, channels)) {
    constexpr int kElements = kThreads * kAhead<Op> * kWidth<typename Op::storage>;
    const std::int64_t blocks = ceil_divide(call.elements, kElements);
    return launch(flat_kernel<Op>, blocks, stream, op, channels, elements);
  }
  const std::int64_t blocks = ceil_divide(call.elements, kThreads * strided_pack<Op>());
  return launch(strided_kernel<Op>, blocks, stream, op, layout<Op>(call), elements);
}

// --- reduced outputs -----------------------------------------------------------------------------

inline bool is_reduced(const Call& call, const Operand& output) {
  const std::int64_t* end = output.strides + call.dims;
  return output.data != nullptr && std::find(output.strides, end, 0) != end;
}

// What one launch over tiles does: the reduced outputs it sums, a bit each, and the dimension along
// its tiles' rows, or -1.
struct Pass {
  std::uint32_t outputs;
  int rows;
};

// The next pass over a call, of whose reduced outputs `left` remain: `most` of them at most. Within
// a tile an output is summed over columns, rows or both; an output that has both needs other rows
// and another pass.
inline Pass next_pass(const Call& call, std::uint32_t left, int most) {
  const int inner = call.dims - 1;
  Pass best = {0, -1};
  for (int k = 0, count = 0; k < kMaxOperands && count < most; ++k) {
    best.outputs |= left & std::uint32_t(1) << k;
    count += left >> k & 1;
  }
  std::int64_t best_rank[3] = {-1, 0, 0};
  for (int d = 0; d < inner; ++d) {
    std::uint32_t outputs = 0;
    std::int64_t rank[3] = {0, 0, call.sizes[d]};  // outputs; of those, summed over d; its size
    for (int k = 0; k < kMaxOperands; ++k) {
      if ((left >> k & 1) == 0 || rank[0] == most) continue;
      const bool over_rows = call.outputs[k].strides[d] == 0;
      if (!over_rows && call.outputs[k].strides[inner] != 0) continue;
      outputs |= std::uint32_t(1) << k;
      rank[0] += 1;
      rank[1] += over_rows;
    }
    if (std::lexicographical_compare(best_rank, best_rank + 3, rank, rank + 3)) {
      std::copy(rank, rank + 3, best_rank);
      best = {outputs, d};
    }
  }
  return best;
}

// Tiles that are enough for any device, and the most packs of a thread in one.
constexpr int kTiles = 2048, kLong = 64;

// A pass over a call, ready to run. `bytes` is the workspace that its partial sums take.
template <typename Op> struct Plan {
  using T = typename Op::T;
  tiling_t<Op> tiling = {};
  bool wide = false;  // see Tile
  Folds<T> folds = {};
  std::int64_t bytes = 0;

  Plan(const Call& call, const Pass& pass, void* workspace) {
    cut(call, pass);
    T* to = static_cast<T*>(workspace);
    int count = 0;
    for (int k = 0; k < Op::kOutputs; ++k) {
      if (pass.outputs >> k & 1) {
        tiling.partials[k].slot = count;
        folds.each[count] = reduce(call, pass, call.outputs[k], to, tiling.partials[k]);
        const std::int64_t used = folds.each[count].elements * folds.each[count].count;
        folds.blocks += folds.each[count++].blocks;
        bytes += used * std::int64_t(sizeof(T));
        if (to != nullptr) to += used;
      }
    }
    wide = is_wide(call, pass);
  }

 private:
  bool is_wide(const Call& call, const Pass& pass) const {
    constexpr int N = tile_pack<Op>();
    constexpr int kBytes = N * int(sizeof(typename Op::storage));
    const auto whole = [&](const Steps& steps) {
      bool found = steps.row % N == 0;
      for (int d = 0; d < tiling.dims; ++d) found &= steps.outer[d] % N == 0;
      return found;
    };
    bool found = tiling.columns % N == 0;
    for (int k = 0; k < Op::kInputs; ++k) {
      const Steps& steps = tiling.inputs[k];
      if (Op::kTensorInputs >> k & 1) {
        found &= steps.column == 1 && whole(steps) && is_aligned<kBytes>(call.inputs[k]);
      } else if (Op::kScalarInputs >> k & 1) {
        found &= steps.column == 0 && steps.row == 0;
        for (int d = 0; d < tiling.dims; ++d) found &= steps.outer[d] == 0;
      } else if (steps.column != 0) {
        found &= steps.column == 1 && whole(steps) && is_aligned<N * sizeof(T)>(call.inputs[k]);
      }
    }
    for (int k = 0; k < Op::kOutputs; ++k) {
      if (call.outputs[k].data == nullptr) continue;
      const bool tensor = Op::kTensorOutputs >> k & 1;
      found &= tensor != bool(pass.outputs >> k & 1);
      if (tensor) found &= is_aligned<kBytes>(call.outputs[k]);
    }
    return found;
  }

  // The tiles: a function of the call's shape and of which outputs are reduced where, nothing else.
  void cut(const Call& call, const Pass& pass) {
    constexpr int N = tile_pack<Op>();
    const int inner = call.dims - 1;
    tiling.rows = pass.rows < 0 ? 1 : call.sizes[pass.rows];
    tiling.columns = call.sizes[inner];
    bool keep_rows = false, keep_columns = false;
    for (int k = 0; k < Op::kOutputs; ++k) {
      if ((pass.outputs >> k & 1) == 0) continue;
      keep_rows |= pass.rows >= 0 && call.outputs[k].strides[pass.rows] != 0;
      keep_columns |= call.outputs[k].strides[inner] != 0;
    }
    // A thread's sums are those of one row or one column where outputs keep these.
    const std::int64_t packs = ceil_divide(tiling.columns, N);
    const int wide = power_of_two(packs, keep_rows || keep_columns ? 32 : kThreads);
    const int height = power_of_two(tiling.rows, kThreads / wide);
    tiling.width = kThreads / height;
    // It moves where there is more to do: at least kTerms packs, for a tile costs as much as a few,
    // and more where enough tiles for any device remain.
    const std::int64_t down = keep_rows ? 1 : ceil_divide(tiling.rows, height);
    const std::int64_t right = keep_columns ? 1 : ceil_divide(packs, tiling.width);
    const std::int64_t share = ceil_divide(call.elements, std::int64_t(N) * kThreads * kTiles);
    const std::int64_t length =
        std::min<std::int64_t>(std::max<std::int64_t>(share, kTerms), kLong);
    const bool goes_down = down >= right;
    const int moves = int(std::min(goes_down ? down : right, length));
    tiling.down = goes_down ? height : 0;
    tiling.right = goes_down ? 0 : tiling.width * N;
    tiling.tile_rows = height * (goes_down ? moves : 1);
    tiling.tile_columns = tiling.width * N * (goes_down ? 1 : moves);
    tiling.row_tiles = ceil_divide(tiling.rows, tiling.tile_rows);
    tiling.column_tiles = ceil_divide(tiling.columns, tiling.tile_columns);
    tiling.tiles = tiling.row_tiles * tiling.column_tiles;
    Operand dense = {};
    std::int64_t stride = 1;
    for (int d = inner; d >= 0; --d) {
      dense.strides[d] = stride;
      stride *= call.sizes[d];
    }
    for (int d = 0; d < inner; ++d) {
      if (d == pass.rows) continue;
      tiling.sizes[tiling.dims++] = call.sizes[d];
      tiling.tiles *= call.sizes[d];
    }
    for (int k = 0; k < Op::kInputs; ++k) tiling.inputs[k] = steps(call, pass, call.inputs[k]);
    tiling.dense = steps(call, pass, dense);
  }

  Steps steps(const Call& call, const Pass& pass, const Operand& operand) const {
    Steps found = {};
    int outer = 0;
    for (int d = 0; d < call.dims; ++d) {
      if (d == call.dims - 1) {
        found.column = operand.strides[d];
      } else if (d == pass.rows) {
        found.row = operand.strides[d];
      } else {
        found.outer[outer++] = operand.strides[d];
      }
    }
    found.next = tiling.down * found.row + tiling.right * found.column;
    return found;
  }

  // Where the partial sums of an output go: along dimensions that it has they lie as its own
  // elements do, and for every index along the others there is a copy of those.
  Fold<T> reduce(const Call& call, const Pass& pass, const Operand& output, T* to,
                 Partials<T>& partials) const {
    Fold<T> fold = {to, output.data, output.dtype, 1, 1, 1, 1};
    for (int d = 0; d < call.dims; ++d) {
      if (output.strides[d] != 0) fold.elements *= call.sizes[d];
    }
    partials.steps = steps(call, pass, output);
    partials.columns = partials.steps.column != 0;
    partials.rows = partials.steps.row != 0;
    const auto copies = [&](std::int64_t& step, std::int64_t size) {
      if (step != 0) return;
      step = fold.elements * fold.count;
      fold.count *= size;
    };
    copies(partials.steps.column, tiling.column_tiles);
    copies(partials.steps.row, tiling.row_tiles);
    for (int d = 0; d < tiling.dims; ++d) copies(partials.steps.outer[d], tiling.sizes[d]);
    partials.to = to;
    // About 8 partial sums a thread, and neighbours in memory for neighbouring threads.
    const int members = power_of_two(ceil_divide(fold.count, 8), 32);
    fold.lanes = power_of_two(fold.elements, kThreads / members);
    fold.blocks = ceil_divide(fold.elements, fold.lanes);
    return fold;
  }
};

// Calls f with each pass over the reduced outputs of a call; returns whether there are any.
template <typename Op, typename F> bool for_each_pass(const Call& call, const F& f) {
  std::uint32_t left = 0;
  for (int k = 0; k < Op::kOutputs; ++k) {
    left |= std::uint32_t(is_reduced(call, call.outputs[k])) << k;
  }
  const bool any = left != 0;
  while (left != 0) {
    const Pass pass = next_pass(call, left, most_sums<Op>());
    left &= ~pass.outputs;
    f(pass);
  }
  return any;
}

template <typename Op>
cudaError_t run_pass(const Call& call, const Pass& pass, void* workspace, cudaStream_t stream) {
  const Plan<Op> plan(call, pass, workspace);
  auto kernel = tile_kernel<Op, false>;
  if constexpr (Op::kTensorInputs != ~0u >> (32 - Op::kInputs)) {  // there are parameters
    if (plan.wide) kernel = tile_kernel<Op, true>;
  }
  const cudaError_t error = launch(kernel, plan.tiling.tiles, stream, Op::of(call), plan.tiling);
  if (error != cudaSuccess) return error;
  return launch(fold_kernel<typename Op::T>, plan.folds.blocks, stream, plan.folds);
}

// --- a kernel for every dtype --------------------------------------------------------------------

// f(Op<S>()) for the storage type of the call, or `otherwise` where its dtypes are not an Op's.
template <template <typename> class Op, typename R, typename F>
R with_storage(const Call& call, R otherwise, const F& f) {
  int first = 0;
  while ((Op<float>::kTensorInputs >> first & 1) == 0) ++first;
  const Dtype storage = call.inputs[first].dtype;
  const bool wide = storage == Dtype::float64;
  if (call.compute != (wide ? Dtype::float64 : Dtype::float32)) return otherwise;
  for (int k = 0; k < Op<float>::kInputs; ++k) {
    const bool tensor = Op<float>::kTensorInputs >> k & 1;
    if (call.inputs[k].dtype != (tensor ? storage : call.compute)) return otherwise;
  }
  for (int k = 0; k < Op<float>::kOutputs; ++k) {
    const bool tensor = Op<float>::kTensorOutputs >> k & 1;
    const Operand& output = call.outputs[k];
    if (output.data == nullptr || is_reduced(call, output)) continue;
    if (output.dtype != (tensor ? storage : call.compute)) return otherwise;
  }
  switch (storage) {
    case Dtype::float64: return f(Op<double>());
    case Dtype::float32: return f(Op<float>());
    case Dtype::bfloat16: return f(Op<__nv_bfloat16>());
    case Dtype::float16: return f(Op<__half>());
  }
  return otherwise;
}

// Both are what kernel.h says of run_on_cuda and cuda_workspace, for one kernel.
template <template <typename> class Op>
cudaError_t run(const Call& call, void* workspace, void* stream) {
  const cudaStream_t in = static_cast<cudaStream_t>(stream);
  return with_storage<Op>(call, cudaErrorInvalidValue, [&](auto kind) {
    using Chosen = decltype(kind);
    if constexpr (Chosen::kGradients) {
      cudaError_t error = cudaSuccess;
      Call rest = call;
      const bool reduced = for_each_pass<Chosen>(call, [&](const Pass& pass) {
        // The first pass writes what is not summed; the others leave it alone.
        Call part = rest;
        for (int k = 0; k < Chosen::kOutputs; ++k) {
          const bool mine = pass.outputs >> k & 1;
          if (!mine && is_reduced(call, call.outputs[k])) part.outputs[k].data = nullptr;
          if (!is_reduced(call, call.outputs[k])) rest.outputs[k].data = nullptr;
        }
        if (error == cudaSuccess) error = run_pass<Chosen>(part, pass, workspace, in);
      });
      if (reduced) return error;
    }
    return sliced(call, [&](const Call& part) { return run_elementwise<Chosen>(part, in); });
  });
}

template <template <typename> class Op> std::int64_t workspace(const Call& call) {
  return with_storage<Op>(call, std::int64_t(0), [&](auto kind) {
    using Chosen = decltype(kind);
    std::int64_t most = 0;
    if constexpr (Chosen::kGradients) {
      for_each_pass<Chosen>(call, [&](const Pass& pass) {
        most = std::max(most, Plan<Chosen>(call, pass, nullptr).bytes);
      });
    }
    return most;
  });
}

}  // namespace autofn
