// Loops over elements: the same for every formula. A kernel of kernels.cu is an `Op`: it loads
// a pack of elements of each input, computes, and stores a pack of each output, by way of a
// position that a loop here gives it. launch.cuh chooses the loop.
//
//   flat_kernel     tensors dense in one order, and aligned; parameters of one element or along
//                   one dimension
//   strided_kernel  inputs of any strides, 0 where they broadcast; outputs dense
//   tile_kernel     some outputs summed along dimensions; fold_kernel adds up its partial sums
//
// Each block does one part of a call, which depends on the call alone: there are as many blocks as
// parts, whatever the device. Of blocks that stride over the parts instead, memory gives 5 % less.
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernel.h"

namespace autofn {

#ifndef AUTOFN_THREADS
#define AUTOFN_THREADS 256
#endif
constexpr int kThreads = AUTOFN_THREADS;  // of every block, a power of two; sums depend on it

// What elements of storage type S are computed in: 16-bit types widen to float, round once.
template <typename S> struct Compute { using type = float; };
template <> struct Compute<double> { using type = double; };
template <typename S> using compute_t = typename Compute<S>::type;

inline __device__ double widen(double value) { return value; }
inline __device__ float widen(float value) { return value; }
inline __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
inline __device__ float widen(__half value) { return __half2float(value); }

inline __device__ void narrow(double value, double& to) { to = value; }
inline __device__ void narrow(double value, float& to) { to = float(value); }
inline __device__ void narrow(float value, double& to) { to = value; }
inline __device__ void narrow(float value, float& to) { to = value; }
inline __device__ void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }
inline __device__ void narrow(float value, __half& to) { to = __float2half_rn(value); }
template <typename S> __device__ void narrow(double value, S& to) { narrow(float(value), to); }

// --- packs -------------------------------------------------------------------------------------

// Elements of S in 16 bytes, the widest access of one thread.
template <typename S> constexpr int kWidth = 16 / sizeof(S);

template <typename S, int N> struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) Pack {
  S at[N];
};

template <int N, typename S> __device__ Pack<S, N> splat(S value) {
  Pack<S, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = value;
  return pack;
}

template <int N, typename S> __device__ bool aligned(const S* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(Pack<S, N>) == 0;
}

// N elements that lie `step` apart, of which `count` are there: the first stands for the others.
template <int N, typename S>
__device__ Pack<S, N> fetch(const S* from, std::int64_t step, int count) {
  if (step == 1 && count == N && aligned<N>(from)) {
    return *reinterpret_cast<const Pack<S, N>*>(from);
  }
  Pack<S, N> pack;
  pack.at[0] = *from;
#pragma unroll
  for (int k = 1; k < N; ++k) pack.at[k] = step != 0 && k < count ? from[k * step] : pack.at[0];
  return pack;
}

template <typename S, typename T, int N> __device__ Pack<S, N> rounded(const Pack<T, N>& values) {
  Pack<S, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) narrow(values.at[k], pack.at[k]);
  return pack;
}

// The first `count` of the values, side by side from `to` on.
template <int N, typename S, typename T>
__device__ void put(S* to, const Pack<T, N>& values, int count) {
  const Pack<S, N> pack = rounded<S>(values);
  if (count == N && aligned<N>(to)) {
    *reinterpret_cast<Pack<S, N>*>(to) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < count) to[k] = pack.at[k];
  }
}

// --- flat: tensors are dense, in one order -------------------------------------------------------

// Division of a number below 2^31 by one that is not 0, as a multiplication.
struct Divisor {
  std::uint32_t value, magic, shift;

  __device__ std::uint32_t divide(std::uint32_t number) const {
    return (__umulhi(number, magic) + number) >> shift;
  }
};

// Parameters along one dimension of a call: element e has the value at e / inner % count, times the
// input's step. The elements of a pack have one value, or (`packs`) a pack of neighbours.
template <int kInputs> struct Channels {
  Divisor inner, count;
  bool packs;
  std::int64_t steps[kInputs];
};

// Pack number `index`, whole and aligned.
template <typename Op> struct Flat {
  const Channels<Op::kInputs>& channels;
  std::uint32_t index;

  template <int N, typename X> __device__ Pack<X, N> load(int k, const X* from) const {
    if (Op::kTensorInputs >> k & 1) return reinterpret_cast<const Pack<X, N>*>(from)[index];
    if (!(Op::kScalarInputs >> k & 1)) {
      const std::uint32_t place = channels.inner.divide(index * N);
      from += (place - channels.count.divide(place) * channels.count.value) * channels.steps[k];
      if (N > 1 && channels.packs && channels.steps[k] != 0) {
        return *reinterpret_cast<const Pack<X, N>*>(from);
      }
    }
    return splat<N>(*from);
  }
  template <int N, typename X, typename T>
  __device__ void store(int, X* to, const Pack<T, N>& values) {
    reinterpret_cast<Pack<X, N>*>(to)[index] = rounded<X>(values);
  }
};

// Packs that a thread has on their way at a time: two of few inputs, for there are not threads
// enough to have all the bytes in flight that memory wants.
template <typename Op> constexpr int kAhead = Op::kInputs <= 4 ? 2 : 1;

// Blocks per multiprocessor that ptxas is to have registers for, 0 where it chooses: of kernels in
// double and of many operands it would spill a few registers to have more blocks.
template <typename Op> __host__ __device__ constexpr int flat_blocks() {
  return sizeof(typename Op::T) == 8 || Op::kMixed || Op::kInputs + Op::kOutputs > 8 ? 1 : 0;
}

template <typename Op>
__global__ void __launch_bounds__(kThreads, flat_blocks<Op>())
flat_kernel(const __grid_constant__ Op op, const __grid_constant__ Channels<Op::kInputs> channels,
            const std::uint32_t elements) {
  constexpr int N = kWidth<typename Op::storage>;
  const std::uint32_t packs = elements / N;
  const std::uint32_t first = blockIdx.x * (kThreads * kAhead<Op>) + threadIdx.x;
  typename Op::template Loaded<N> loaded[kAhead<Op>];
  if (first < packs) {
#pragma unroll
    for (int k = 0; k < kAhead<Op>; ++k) {
      const std::uint32_t index = first + k * kThreads;
      loaded[k] = op.template load<N>(Flat<Op>{channels, index < packs ? index : first});
    }
#pragma unroll
    for (int k = 0; k < kAhead<Op>; ++k) {
      Flat<Op> at = {channels, first + k * kThreads};
      if (at.index < packs) op.template compute<N>(loaded[k], at);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < elements % N) {
    Flat<Op> at = {channels, packs * N + threadIdx.x};
    op.template compute<1>(op.template load<1>(at), at);
  }
}

// --- strided: inputs of any strides, outputs dense -----------------------------------------------

// Where the inputs of a call lie.
template <int kInputs> struct Layout {
  int dims;                                      // of the iteration space, at least 1
  std::uint32_t dense;                           // a bit per input
  Divisor sizes[kMaxDims];                       // outermost first
  std::int64_t strides[kInputs][kMaxDims];       // in elements
};

// Up to N elements from `first` on, which no input that is not dense has side by side unless they
// are of one row.
template <int kInputs> struct Strided {
  const Layout<kInputs>& layout;
  std::uint32_t first;
  int count;
  bool row;  // the elements are neighbours along the innermost dimension
  std::int64_t offsets[kInputs];

  __device__ Strided(const Layout<kInputs>& given, std::uint32_t start, int elements)
      : layout(given), first(start), count(elements), offsets() {
    std::uint32_t rest = start;
    row = true;
#pragma unroll 1
    for (int d = layout.dims - 1; d >= 0; --d) {
      const std::uint32_t quotient = d > 0 ? layout.sizes[d].divide(rest) : 0;
      const std::uint32_t index = rest - quotient * layout.sizes[d].value;
      if (d == layout.dims - 1) row = index + elements <= layout.sizes[d].value;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) offsets[k] += index * layout.strides[k][d];
      rest = quotient;
    }
  }

  template <int N, typename S> __device__ Pack<S, N> load(int k, const S* from) const {
    if (layout.dense >> k & 1) return fetch<N>(from + first, 1, count);
    if (row) return fetch<N>(from + offsets[k], layout.strides[k][layout.dims - 1], count);
    Pack<S, N> pack;
#pragma unroll
    for (int n = 0; n < N; ++n) pack.at[n] = from[offset(k, first + (n < count ? n : 0))];
    return pack;
  }

  __device__ std::int64_t offset(int k, std::uint32_t element) const {
    std::int64_t found = 0;
#pragma unroll 1
    for (int d = layout.dims - 1; d >= 0; --d) {
      const std::uint32_t quotient = d > 0 ? layout.sizes[d].divide(element) : 0;
      found += (element - quotient * layout.sizes[d].value) * layout.strides[k][d];
      element = quotient;
    }
    return found;
  }

  template <int N, typename S, typename T>
  __device__ void store(int, S* to, const Pack<T, N>& values) {
    put(to + first, values, count);
  }
};

// Elements of a pack: fewer where there are not registers for the offsets of so many operands.
template <typename Op> __host__ __device__ constexpr int strided_pack() {
  constexpr int kMost = kWidth<typename Op::storage>;
  return Op::kInputs + Op::kOutputs > 16 ? (kMost + 1) / 2 : kMost;
}

template <typename Op>
__global__ void __launch_bounds__(kThreads, 1)
strided_kernel(const __grid_constant__ Op op, const __grid_constant__ Layout<Op::kInputs> layout,
               const std::uint32_t elements) {
  constexpr int N = strided_pack<Op>();
  const std::uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * N;
  if (first >= elements) return;
  Strided<Op::kInputs> at(layout, first, elements - first < N ? int(elements - first) : N);
  op.template compute<N>(op.template load<N>(at), at);
}

// --- sums ----------------------------------------------------------------------------------------

// A sum of any length with the error of one addition: what is rounded off is kept.
template <typename T> struct Sum {
  T high, low;

  __device__ void add(T value) {
    const T sum = high + value, part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  __device__ void add(const Sum& other) {
    add(other.high);
    low += other.low;
  }
  // Past the largest number there is nothing to correct.
  __device__ T value() const { return low - low == T(0) ? high + low : high; }
};

// Adds up the sums of a block in groups: thread t's are shared[t + layer * kThreads], and a group
// is `members` threads (a power of two) that lie `stride` apart. Its first gets the result.
template <typename T>
__device__ void combine(Sum<T>* shared, int layers, int members, int stride) {
  const int thread = threadIdx.x, member = thread / stride % members;
  for (int left = members; left > 1;) {
    const int next = left > 4 ? left / 4 : 1;
    __syncthreads();
    for (int layer = 0; layer < layers && member < next; ++layer) {
      Sum<T>* mine = shared + layer * kThreads + thread;
      for (int k = next; k < left - member; k += next) mine->add(mine[k * stride]);
    }
    left = next;
  }
}

// --- tiles: some outputs are summed --------------------------------------------------------------

// Elements that a thread adds up plainly in each of its sums: 7 roundings. All else is added by
// Sum, so a reduced output is off by at most 10 roundings of the sum of absolute terms.
constexpr int kTerms = 8;

// Steps of an operand, in elements: along outer dimensions, rows and columns, and from a thread's
// pack to its next one.
struct Steps {
  std::int64_t outer[kMaxDims], row, column, next;
};

// The partial sums of one output in the workspace: `count` times its elements.
template <typename T> struct Partials {
  T* to;  // null: the output is not summed
  Steps steps;
  bool rows, columns;  // which of the two dimensions of a tile the output has
  int slot;            // of the memory that the threads of a block share
};

// How a call is cut into tiles: of its dimensions the innermost is the columns of a tile, another
// one its rows, and along the outer ones a tile has a single index. A tile's threads stand in rows
// of `width`, and each takes N columns at a time. From one pack to its next a thread moves down, or
// to the right: one of the two moves is 0.
template <typename T, int kInputs, int kOutputs> struct Tiling {
  int dims;  // outer ones
  std::int64_t sizes[kMaxDims];
  std::int64_t rows, columns, row_tiles, column_tiles, tiles;
  int tile_rows, tile_columns, width, down, right;
  Steps inputs[kInputs], dense;  // `dense` is for the outputs that are not summed
  Partials<T> partials[kOutputs];
};

template <typename Op>
using tiling_t = Tiling<typename Op::T, Op::kInputs, Op::kOutputs>;

// Elements of a pack: 2 or 4, as there are registers for, with the sums of each.
template <typename Op> __host__ __device__ constexpr int tile_pack() {
  constexpr int kOperands = Op::kInputs + Op::kOutputs, kWords = sizeof(typename Op::T) / 4;
  return kWords == 1 && kOperands <= 16 ? 4 : 2;
}

// Outputs that are summed in one go: what a block shares is memory for the sums of so many.
template <typename Op> __host__ __device__ constexpr int most_sums() {
  constexpr int kBytes = kThreads * tile_pack<Op>() * 2 * int(sizeof(typename Op::T));
  constexpr int kFit = 48 * 1024 / kBytes;
  return Op::kOutputs < kFit ? Op::kOutputs : kFit;
}

// A tile, and the packs of it that this thread computes. `kWide`: all packs are whole, tensors lie
// dense and aligned along the columns, and of the outputs exactly the parameters' are summed.
template <typename Op, bool kWide> struct Tile {
  static constexpr int N = tile_pack<Op>();
  using T = typename Op::T;

  const tiling_t<Op>& tiling;
  Sum<T>* const shared;
  const std::int64_t index;
  int rows, columns;  // of this tile
  std::int64_t inputs[Op::kInputs], dense;  // where the thread's next pack lies
  int column, left;  // of that pack; how many there are, with it
  int ahead = 0;     // of that pack, the one at hand
  // For outputs that have columns, plain sums of each, which flush() adds to those in shared; for
  // others, a Sum.
  T sums[Op::kOutputs][N];

  __device__ Tile(const tiling_t<Op>& given, Sum<T>* memory, std::int64_t number)
      : tiling(given), shared(memory), index(number), inputs(), dense(0), sums() {
    const std::int64_t row_tile = index / tiling.column_tiles % tiling.row_tiles;
    rows = within(tiling.rows - row_tile * tiling.tile_rows, tiling.tile_rows);
    const std::int64_t column_tile = index % tiling.column_tiles;
    columns = within(tiling.columns - column_tile * tiling.tile_columns, tiling.tile_columns);
    const int row = threadIdx.x / tiling.width;
    column = threadIdx.x % tiling.width * N;
    locate([&](const auto& add) {
#pragma unroll
      for (int k = 0; k < Op::kInputs; ++k) add(tiling.inputs[k], inputs[k], true, true);
      add(tiling.dense, dense, true, true);
    });
    const auto move = [&](const Steps& steps, std::int64_t& offset) {
      offset += row * steps.row + column * steps.column;
    };
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) move(tiling.inputs[k], inputs[k]);
    move(tiling.dense, dense);
    left = row >= rows || column >= columns ? 0
           : tiling.down > 0 ? (rows - row + tiling.down - 1) / tiling.down
                             : (columns - column + tiling.right - 1) / tiling.right;
#pragma unroll
    for (int k = 0; k < Op::kOutputs; ++k) {
      if (!has_columns(k)) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) shared[place(k, n)] = {0, 0};
    }
  }

  static __device__ int within(std::int64_t left, int most) {
    return left < most ? int(left) : most;
  }

  // Adds to offsets what the tile's place contributes: each(add) calls add(steps, offset, whether
  // its rows and columns are elements, not tiles) for every operand.
  template <typename Each> __device__ void locate(const Each& each) const {
    std::int64_t outer = index / tiling.column_tiles;
    const std::int64_t row_tile = outer % tiling.row_tiles;
    const std::int64_t column_tile = index % tiling.column_tiles;
    outer /= tiling.row_tiles;
    each([&](const Steps& steps, std::int64_t& offset, bool by_row, bool by_column) {
      offset += (by_row ? row_tile * tiling.tile_rows : row_tile) * steps.row +
                (by_column ? column_tile * tiling.tile_columns : column_tile) * steps.column;
    });
    for (int d = tiling.dims - 1; d >= 0; --d) {
      const std::int64_t place = outer % tiling.sizes[d];
      outer /= tiling.sizes[d];
      each([&](const Steps& steps, std::int64_t& offset, bool, bool) {
        offset += place * steps.outer[d];
      });
    }
  }

  __device__ bool is_summed(int k) const { return tiling.partials[k].to != nullptr; }
  __device__ bool has_columns(int k) const { return is_summed(k) && tiling.partials[k].columns; }

  // Where this thread's sum of an output is shared, in each of N layers.
  __device__ int place(int k, int layer) const {
    return (tiling.partials[k].slot * N + layer) * kThreads + threadIdx.x;
  }

  __device__ int count() const { return within(columns - column - ahead * tiling.right, N); }

  template <int, typename S> __device__ Pack<S, N> load(int k, const S* from) const {
    const Steps& steps = tiling.inputs[k];
    if constexpr (kWide) {
      if (!(Op::kScalarInputs >> k & 1)) from += inputs[k] + ahead * steps.next;
      if (Op::kTensorInputs >> k & 1 || (!(Op::kScalarInputs >> k & 1) && steps.column != 0)) {
        return *reinterpret_cast<const Pack<S, N>*>(from);
      }
      return splat<N>(*from);
    }
    return fetch<N>(from + inputs[k] + ahead * steps.next, steps.column, count());
  }

  template <typename S> __device__ void store(int k, S* to, const Pack<T, N>& values) {
    if (kWide && Op::kTensorOutputs >> k & 1) {
      *reinterpret_cast<Pack<S, N>*>(to + dense + ahead * tiling.dense.next) = rounded<S>(values);
    } else if (!kWide && !is_summed(k)) {
      put(to + dense + ahead * tiling.dense.next, values, count());
    } else if (tiling.partials[k].columns) {
#pragma unroll
      for (int n = 0; n < N; ++n) sums[k][n] += values.at[n];  // of no column: not looked at
    } else {
      Pack<T, N> terms = values;
#pragma unroll
      for (int n = 1; n < N; ++n) {
        if (!kWide && n >= count()) terms.at[n] = T(0);
      }
#pragma unroll
      for (int step = 1; step < N; step *= 2) {
#pragma unroll
        for (int n = 0; n < N; n += 2 * step) terms.at[n] += terms.at[n + step];
      }
      Sum<T> sum = {sums[k][0], sums[k][1]};
      sum.add(terms.at[0]);
      sums[k][0] = sum.high;
      sums[k][1] = sum.low;
    }
  }

  __device__ void advance(int packs) {
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) inputs[k] += packs * tiling.inputs[k].next;
    dense += packs * tiling.dense.next;
    column += packs * tiling.right;
    left -= packs;
  }

  __device__ void flush() {
#pragma unroll
    for (int k = 0; k < Op::kOutputs; ++k) {
      if (!has_columns(k)) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        shared[place(k, n)].add(sums[k][n]);
        sums[k][n] = 0;
      }
    }
  }

  // Adds up the sums of all threads, and writes them to the workspace.
  __device__ void finish() {
    flush();
#pragma unroll
    for (int k = 0; k < Op::kOutputs; ++k) {
      if (is_summed(k) && !has_columns(k)) shared[place(k, 0)] = {sums[k][0], sums[k][1]};
    }
    std::int64_t offsets[Op::kOutputs] = {};
    locate([&](const auto& add) {
#pragma unroll
      for (int k = 0; k < Op::kOutputs; ++k) {
        const Partials<T>& mine = tiling.partials[k];
        add(mine.steps, offsets[k], mine.rows, mine.columns);
      }
    });
    const int thread = threadIdx.x, x = thread % tiling.width, y = thread / tiling.width;
#pragma unroll
    for (int k = 0; k < Op::kOutputs; ++k) {
      const Partials<T>& mine = tiling.partials[k];
      if (mine.to == nullptr) continue;
      const int stride = mine.columns ? tiling.width : 1;
      const int members = mine.columns ? kThreads / tiling.width
                          : mine.rows  ? tiling.width : kThreads;
      const int layers = mine.columns ? N : 1;
      Sum<T>* sums_of_all = shared + mine.slot * N * kThreads;
      combine(sums_of_all, layers, members, stride);
      if (thread / stride % members != 0 || (mine.rows && y >= rows)) continue;
      T* to = mine.to + offsets[k];
      if (mine.rows) to += y * mine.steps.row;
      for (int n = 0; n < layers; ++n) {
        const int at = x * N + n;
        if (mine.columns && at >= columns) break;
        to[mine.columns ? at * mine.steps.column : 0] = sums_of_all[n * kThreads + thread].value();
      }
    }
  }
};

// Packs of a tile that a thread has on their way at a time. Both this and the blocks that there are
// to be registers for are as many as need no spill.
#ifndef AUTOFN_TILE_AHEAD
#define AUTOFN_TILE_AHEAD 2
#endif
template <typename Op>
constexpr int kTileAhead =
    sizeof(typename Op::T) == 8 || Op::kInputs + Op::kOutputs > 9 ? 1 : AUTOFN_TILE_AHEAD;

template <typename Op> __host__ __device__ constexpr int tile_blocks() {
  constexpr int kOperands = Op::kInputs + Op::kOutputs + (Op::kMixed ? 2 : 0);
  return sizeof(typename Op::T) == 8 || kOperands > 9 ? 1 : kOperands > 6 ? 2 : 3;
}

template <typename Op, bool kWide>
__global__ void __launch_bounds__(kThreads, tile_blocks<Op>())
tile_kernel(const __grid_constant__ Op op, const __grid_constant__ tiling_t<Op> tiling) {
  constexpr int N = tile_pack<Op>(), ahead = kTileAhead<Op>;
  __shared__ Sum<typename Op::T> shared[most_sums<Op>() * N * kThreads];
  Tile<Op, kWide> at(tiling, shared, blockIdx.x);
#pragma unroll 1
  for (int terms = ahead; at.left > 0; terms += ahead) {
    typename Op::template Loaded<N> loaded[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      at.ahead = k < at.left ? k : 0;
      loaded[k] = op.template load<N>(at);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      if (k >= at.left) break;
      at.ahead = k;
      op.template compute<N>(loaded[k], at);
    }
    at.advance(ahead);
    if (terms % kTerms == 0) at.flush();
  }
  at.ahead = 0;
  at.finish();
}

// --- folds: the partial sums of reduced outputs added up -----------------------------------------

// One output: element e is the sum of partials[e + k * elements] over k < count.
template <typename T> struct Fold {
  const T* partials;
  void* to;
  Dtype dtype;
  int lanes;  // elements of a block, a power of two: kThreads / lanes threads share in each
  std::int64_t elements, count, blocks;
};

template <typename T> struct Folds {
  std::int64_t blocks;
  Fold<T> each[kMaxOperands];
};

template <typename T> __device__ void save(T value, void* to, Dtype dtype, std::int64_t at) {
  switch (dtype) {
    case Dtype::float64: return narrow(value, static_cast<double*>(to)[at]);
    case Dtype::float32: return narrow(value, static_cast<float*>(to)[at]);
    case Dtype::bfloat16: return narrow(value, static_cast<__nv_bfloat16*>(to)[at]);
    case Dtype::float16: return narrow(value, static_cast<__half*>(to)[at]);
  }
}

// Internal to its library: other packages may bring other versions of it.
template <typename T>
static __global__ void __launch_bounds__(kThreads, 1)
fold_kernel(const __grid_constant__ Folds<T> folds) {
  __shared__ Sum<T> shared[kThreads];
  const int thread = threadIdx.x;
  std::int64_t block = blockIdx.x;
  const Fold<T>* fold = folds.each;
  for (; block >= fold->blocks; ++fold) block -= fold->blocks;
  const int member = thread / fold->lanes, members = kThreads / fold->lanes;
  const std::int64_t element = block * fold->lanes + thread % fold->lanes;
  Sum<T> sum = {0, 0};
  if (element < fold->elements) {
#pragma unroll 4
    for (std::int64_t k = member; k < fold->count; k += members) {
      sum.add(fold->partials[k * fold->elements + element]);
    }
  }
  shared[thread] = sum;
  combine(shared, 1, members, fold->lanes);
  if (member == 0 && element < fold->elements) {
    save(shared[thread].value(), fold->to, fold->dtype, element);
  }
}

}  // namespace autofn
