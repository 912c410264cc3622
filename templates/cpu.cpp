// Runs kernels on the CPU: the same for every formula.
//
// The iteration space is cut into tasks, and a task into blocks; a kernel computes one block at a
// time. What lies dense in memory in the compute type, or in bfloat16, is computed in place, a task
// at a time; anything else (float16, strides, broadcasts) by way of a buffer in the first-level
// cache. What is a function of one 16-bit tensor is looked up in a table of all its values.
// Tasks, blocks and whether there is a table depend on the shape alone, so results are the same
// bits for any number of threads.
#include <algorithm>
#include <cfloat>
#include <cstring>
#include <memory>
#include <vector>

#include "kernel.h"

#if defined(__AVX__) && defined(__linux__)
#include <sys/mman.h>
#define AUTOFN_STREAMS
#endif

namespace autofn {
namespace {

using std::int64_t;

constexpr int64_t kBlock = 512;       // elements of a buffer
constexpr int64_t kTask = 32768;      // elements of a task, unless it has reduced outputs
constexpr int64_t kReducing = 64;     // tasks of a call with reduced outputs, about
constexpr int64_t kColumns = 4096;    // of a task that sums over rows
constexpr int64_t kStreamed = 1024;   // elements of a block that is stored past the caches
constexpr int64_t kMany = 32 << 20;   // bytes of results, from where on they are stored so
constexpr int kLanes = 16;            // of a sum along a row
constexpr int kTerms = 8;             // of a chain of float32 additions: 7 roundings

// --- storage types: 16-bit ones widen to float32, and round to nearest, ties to even -----------

struct Float16 { std::uint16_t bits; };

inline float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(BFloat16 value) { return value; }

inline float widen(Float16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fff;
  const std::uint32_t rebias = magnitude >= 0x7c00 ? 224u << 23 : 112u << 23;  // 224: inf, NaN
  const float normal = from_bits((magnitude << 13) + rebias);
  const float subnormal = float(std::int32_t(magnitude)) * 0x1p-24f;
  const float wide = magnitude < 0x400 ? subnormal : normal;
  return from_bits(to_bits(wide) | std::uint32_t(value.bits & 0x8000) << 16);
}

inline void narrow(double value, double& to) { to = value; }
inline void narrow(double value, float& to) { to = float(value); }
inline void narrow(float value, float& to) { to = value; }
inline void narrow(float value, double& to) { to = value; }

inline void narrow(float value, BFloat16& to) { to = value; }

inline void narrow(float value, Float16& to) {
  const std::uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffff;
  // Below 2^-14, adding 0.5 leaves a multiple of 2^-24 in the last bits, rounded.
  const std::uint32_t small = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const std::uint32_t finite = magnitude < 0x38800000 ? small : normal;
  const std::uint32_t huge = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;  // NaN, or 65520 and up
  const std::uint32_t rounded = magnitude < 0x477ff000 ? finite : huge;
  to.bits = std::uint16_t(rounded | (bits >> 16 & 0x8000));
}

inline void narrow(double value, BFloat16& to) { narrow(float(value), to); }
inline void narrow(double value, Float16& to) { narrow(float(value), to); }

// Calls f with a null pointer to the storage type of `dtype`.
template <typename F>
void with_storage(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::float64: return f(static_cast<double*>(nullptr));
    case Dtype::float32: return f(static_cast<float*>(nullptr));
    case Dtype::bfloat16: return f(static_cast<BFloat16*>(nullptr));
    case Dtype::float16: return f(static_cast<Float16*>(nullptr));
  }
}

// The start of a row, as far as the processor converts by itself; how far that is.
template <typename From, typename To>
int64_t converted(const From*, int64_t, To*) { return 0; }

// GNU's compiler does not vectorise the scalar instruction, and takes long over immintrin.h.
#if defined(__F16C__) && defined(__GNUC__) && !defined(__clang__)
typedef short Eight16 __attribute__((vector_size(16)));
typedef float Eight32 __attribute__((vector_size(32)));

inline int64_t converted(const Float16* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    Eight16 narrow;
    std::memcpy(&narrow, from + i, sizeof narrow);
    const Eight32 wide = __builtin_ia32_vcvtph2ps256(narrow);
    std::memcpy(to + i, &wide, sizeof wide);
  }
  return i;
}

inline int64_t converted(const float* from, int64_t n, Float16* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    Eight32 wide;
    std::memcpy(&wide, from + i, sizeof wide);
    const Eight16 narrow = __builtin_ia32_vcvtps2ph256(wide, 0);  // to nearest, ties to even
    std::memcpy(to + i, &narrow, sizeof narrow);
  }
  return i;
}
#endif

template <typename T> constexpr Dtype dtype_of = sizeof(T) == 8 ? Dtype::float64 : Dtype::float32;

// n elements, `stride` apart, into a buffer.
template <typename S, typename T>
void read(const S* from, int64_t stride, int64_t n, T* to) {
  if (stride == 0) {
    std::fill(to, to + n, T(widen(*from)));
  } else if (stride == 1) {
    const int64_t first = converted(from, n, to);
#pragma omp simd
    for (int64_t i = first; i < n; ++i) to[i] = T(widen(from[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = T(widen(from[i * stride]));
  }
}

template <typename T, typename S>
void write(const T* from, int64_t n, S* to) {
  const int64_t first = converted(from, n, to);
#pragma omp simd
  for (int64_t i = first; i < n; ++i) narrow(from[i], to[i]);
}

// The next block of what lies dense, which the processor does not look that far ahead for while it
// computes: a fifth of the time of 16-bit types.
template <typename S>
void prefetch(const S* next, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(S))) __builtin_prefetch(next + i);
}

// Stores past the caches: a line that is stored whole needs not be read from memory first, which is
// a tenth to a fifth of the time of what only moves memory.
#ifdef AUTOFN_STREAMS
// Whether that pays where results will lie. What was never written to lies nowhere yet: the system
// clears a page when it is first stored to, which leaves the page in the caches. There streams are
// slower.
bool may_stream(const char* to, int64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % 32 != 0) return false;
  const auto middle = reinterpret_cast<std::uintptr_t>(to + bytes / 2);
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(middle / 4096 * 4096), 1, &resident) == 0 && resident & 1;
}

// The header of these stores takes a second to compile.
void stream(const char* from, int64_t bytes, char* to) {
  typedef float Vector __attribute__((vector_size(32)));
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    Vector value;
    std::memcpy(&value, from + i, sizeof value);
#ifdef __clang__
    __builtin_nontemporal_store(value, reinterpret_cast<Vector*>(to + i));
#else
    __builtin_ia32_movntps256(reinterpret_cast<float*>(to + i), value);
#endif
  }
  std::memcpy(to + i, from + i, bytes - i);
}

void finish_streams() { __builtin_ia32_sfence(); }
#else
bool may_stream(const char*, int64_t) { return false; }
void stream(const char*, int64_t, char*) {}
void finish_streams() {}
#endif

template <typename S>
void prefetch_to_write(const S* next, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(S))) __builtin_prefetch(next + i, 1);
}

// --- how a call is cut -------------------------------------------------------------------------

// The iteration space as rows of columns: columns are the innermost dimension.
struct Cut {
  int64_t rows, columns;
  bool by_rows;                     // a block is whole rows, not a piece of one
  int64_t task_rows, task_columns;  // of a task; fewer in the last one
  int64_t across, tasks;            // tasks side by side, and in all
};

bool is_reduced(const Call& call, const Operand& output) {
  for (int d = 0; d < call.dims; ++d) {
    if (output.strides[d] == 0) return true;
  }
  return false;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Cut cut(const Call& call, bool reducing) {
  Cut made;
  made.columns = call.dims ? call.sizes[call.dims - 1] : 1;
  made.rows = call.elements / made.columns;
  made.by_rows = made.columns <= kBlock / 2;
  made.task_columns = std::min(made.columns, reducing ? kColumns : kTask);
  made.across = ceil_div(made.columns, made.task_columns);
  made.task_rows = std::max<int64_t>(1, kTask / made.task_columns);
  if (reducing) {
    made.task_rows = std::max(made.task_rows, ceil_div(made.rows * made.across, kReducing));
  }
  if (made.by_rows) {  // whole blocks
    const int64_t block = kBlock / made.columns;
    made.task_rows = ceil_div(made.task_rows, block) * block;
  }
  made.task_rows = std::min(made.task_rows, made.rows);
  made.tasks = made.across * ceil_div(made.rows, made.task_rows);
  return made;
}

// The offset of a row's first element in an operand.
int64_t row_offset(const Call& call, const Operand& operand, int64_t row) {
  int64_t offset = 0;
  for (int d = call.dims - 2; d >= 0 && row > 0; --d) {
    offset += row % call.sizes[d] * operand.strides[d];
    row /= call.sizes[d];
  }
  return offset;
}

// Whether an operand is the same in every row.
bool is_steady(const Call& call, const Operand& operand) {
  for (int d = 0; d < call.dims - 1; ++d) {
    if (operand.strides[d] != 0) return false;
  }
  return true;
}

bool is_dense(const Call& call, const Operand& operand) {
  int64_t stride = 1;
  for (int d = call.dims - 1; d >= 0; --d) {
    if (operand.strides[d] != stride) return false;
    stride *= call.sizes[d];
  }
  return true;
}

// A block: rows [row, row + rows) of columns [column, column + columns).
struct Range {
  int64_t row, rows, column, columns;
  int64_t elements() const { return rows * columns; }
};

// --- inputs --------------------------------------------------------------------------------------

// Gives the kernel its input, block by block: where it lies, or in a buffer.
template <typename T>
class Reader {
 public:
  Reader(const Call& call, const Operand& operand, T* buffer)
      : call_(call), operand_(operand), buffer_(buffer), dense_(is_dense(call, operand)),
        steady_(is_steady(call, operand)),
        inner_(call.dims ? operand.strides[call.dims - 1] : 0),
        in_place_(operand.dtype == dtype_of<T>) {}

  // Whether the input has one value in all of a block.
  bool is_uniform(const Range& block) const { return inner_ == 0 && (steady_ || block.rows == 1); }

  // `first`: no more than the block's first element is looked at.
  const T* at(const Range& block, int64_t columns, bool first = false) {
    const T* data = static_cast<const T*>(operand_.data);
    if (in_place_) {
      if (dense_) return data + block.row * columns + block.column;
      if (block.rows == 1 && inner_ == 1) {
        return data + row_offset(call_, operand_, block.row) + block.column;
      }
    }
    const Range some = first ? Range{block.row, 1, block.column, 1} : block;
    with_storage(operand_.dtype, [&](auto* storage) { fill(storage, some, columns); });
    return buffer_;
  }

 private:
  template <typename S>
  void fill(S*, const Range& block, int64_t columns) {
    const S* data = static_cast<const S*>(operand_.data);
    if (dense_) {
      const S* here = data + block.row * columns + block.column;
      prefetch(here + block.elements(), block.elements());
      return read(here, 1, block.elements(), buffer_);
    }
    // What the buffer holds already is not read again: a row's one value, or every row's.
    const int64_t first = row_offset(call_, operand_, block.row) + block.column * inner_;
    const bool same = steady_ || block.rows == 1;
    if (same && first == held_ && block.elements() <= held_elements_) return;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t offset =
          r == 0 || steady_ ? first : row_offset(call_, operand_, block.row + r);
      read(data + offset, inner_, block.columns, buffer_ + r * block.columns);
    }
    held_ = same ? first : -1;
    held_elements_ = block.elements();
  }

  const Call& call_;
  const Operand& operand_;
  T* buffer_;
  bool dense_, steady_;
  int64_t inner_;
  bool in_place_;
  int64_t held_ = -1, held_elements_ = 0;
};

// --- reduced outputs -----------------------------------------------------------------------------

// Sums of one task: element i of the output is sums[i - first].
struct Partial {
  int64_t first = 0;
  std::vector<double> sums;
};

// Adds n terms to double lanes by way of short chains in T.
template <typename T>
void add_lanes(const T* terms, int64_t n, double* lanes) {
  int64_t i = 0;
  for (; i + kLanes * kTerms <= n; i += kLanes * kTerms) {
    T chain[kLanes];
    for (int l = 0; l < kLanes; ++l) chain[l] = terms[i + l];
    for (int k = 1; k < kTerms; ++k) {
      for (int l = 0; l < kLanes; ++l) chain[l] += terms[i + k * kLanes + l];
    }
    for (int l = 0; l < kLanes; ++l) lanes[l] += chain[l];
  }
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += terms[i + l];
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += terms[i];
}

inline double fold(double* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  const double sum = lanes[0];
  std::fill(lanes, lanes + kLanes, 0.0);
  return sum;
}

// Sums the blocks of one task that a kernel computed into a buffer.
template <typename T>
class Summer {
 public:
  Summer(const Call& call, const Operand& operand, const Range& task, bool by_rows)
      : call_(call), operand_(operand), steady_(is_steady(call, operand)),
        along_(operand.strides[call.dims - 1] == 0) {
    int64_t low = row_offset(call, operand, task.row), high = low;
    if (!steady_) {
      for (int64_t r = 1; r < task.rows; ++r) {
        const int64_t offset = row_offset(call, operand, task.row + r);
        low = std::min(low, offset);
        high = std::max(high, offset);
      }
    }
    partial_.first = low + (along_ ? 0 : task.column);
    partial_.sums.resize(high - low + (along_ ? 1 : task.columns));
    if (!along_) chains_.resize(by_rows ? std::max(kBlock, task.columns) : task.columns);
    column_ = task.column;
  }

  void add(const T* terms, const Range& block) {
    if (!along_) {
      add_columns(terms, block);
    } else if (steady_) {
      add_lanes(terms, block.elements(), lanes_);
    } else {
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t at = row_offset(call_, operand_, block.row + r);
        if (at != at_) flush_lanes(at);
        add_lanes(terms + r * block.columns, block.columns, lanes_);
      }
    }
  }

  Partial finish() {
    if (along_) flush_lanes(at_); else flush_columns();
    return std::move(partial_);
  }

 private:
  void flush_lanes(int64_t next) {
    partial_.sums[(at_ < 0 ? partial_.first : at_) - partial_.first] += fold(lanes_);
    at_ = next;
  }

  // Rows are added up in T, at most kTerms of them, and then to the sums.
  void add_columns(const T* terms, const Range& block) {
    const int64_t at = row_offset(call_, operand_, block.row);
    if (at != at_ || block.row >= first_row_ + kTerms * block.rows) {
      flush_columns();
      at_ = at;
      first_row_ = block.row;
    }
    T* chains = chains_.data() + (block.column - column_);
    const int64_t n = block.elements();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) chains[i] += terms[i];
    pending_rows_ = std::max(pending_rows_, block.rows);
    width_ = std::max(width_, block.column - column_ + block.columns);
    if (block.rows > 1 && !steady_) flush_columns();
  }

  void flush_columns() {
    for (int64_t r = 0; r < pending_rows_; ++r) {
      const int64_t at = r == 0 || steady_ ? at_ : row_offset(call_, operand_, first_row_ + r);
      double* sums = partial_.sums.data() + (at + column_ - partial_.first);
      T* chains = chains_.data() + r * width_;
#pragma omp simd
      for (int64_t i = 0; i < width_; ++i) {
        sums[i] += chains[i];
        chains[i] = 0;
      }
    }
    pending_rows_ = width_ = 0;
    at_ = -1;
  }

  const Call& call_;
  const Operand& operand_;
  bool steady_, along_;  // along_: a row is summed to one element
  Partial partial_;
  double lanes_[kLanes] = {};
  std::vector<T> chains_;
  int64_t at_ = -1, first_row_ = 0, pending_rows_ = 0, width_ = 0, column_ = 0;
};

// --- tables --------------------------------------------------------------------------------------

constexpr int kCodes = 1 << 16;            // the values of a 16-bit type
constexpr int64_t kLookedUp = 2 * kCodes;  // elements of a call, from where on a table pays
constexpr int64_t kFilled = 4096;          // codes of a task

// The functions that a kernel's outputs are, but for factors, at every value of a 16-bit type. NaN
// where float32 does not have the digits of one: there the elements are computed.
struct Table {
  std::vector<double> parameters;     // it was made with: numbers, then a value per input
  std::vector<std::uint32_t> values;  // by output, then by code
  // An output without factors is found as the 16 bits that are stored, any other as a float's bits.
  static bool is_stored(const Kernel& kernel, int output) {
    return kernel.factors[output] == 0 && kernel.places[kernel.inputs + output] == kTensor;
  }
};

// Computes a table as the elements would be, with 1 for the factors.
class Filler {
 public:
  Filler(const Kernel& kernel, const Blocks& blocks, Dtype dtype, Table& table)
      : kernel_(kernel), blocks_(blocks), dtype_(dtype), table_(table) {
    table.values.resize(kernel.outputs * kCodes);
  }

  void all(ParallelFor parallel_for) {
    parallel_for(kCodes / kFilled, [](void* filler, int64_t first, int64_t last) {
      for (; first < last; ++first) static_cast<Filler*>(filler)->fill(first * kFilled);
    }, this);
  }

 private:
  void fill(int64_t first) {
    std::vector<double> arguments(kFilled), again;
    for (int64_t i = 0; i < kFilled; ++i) arguments[i] = widened(std::uint16_t(first + i));
    const std::vector<float> found = computed<float>(blocks_.of_16_bits, arguments);
    // What is subnormal has lost digits, which a large factor brings to light; 0 may have, too.
    std::vector<int64_t> places;
    for (int64_t i = 0; i < kFilled; ++i) {
      bool keeps = true;
      for (int k = 0; k < kernel_.outputs; ++k) {
        const float value = found[k * kFilled + i];
        table_.values[k * kCodes + first + i] =
            Table::is_stored(kernel_, k) ? narrowed(value) : to_bits(value);
        keeps &= kernel_.factors[k] == 0 || is_normal(value);
      }
      if (keeps) continue;
      again.push_back(arguments[i]);
      places.push_back(first + i);
    }
    const std::vector<double> exact = computed<double>(blocks_.float64, again);
    for (std::size_t n = 0; n < exact.size(); ++n) {
      const std::size_t k = n / again.size(), i = n % again.size();
      if (kernel_.factors[k] == 0) continue;
      const bool is_float = exact[n] == 0 || is_normal(exact[n]);
      table_.values[k * kCodes + places[i]] = is_float ? to_bits(float(exact[n])) : 0x7fc00000;
    }
  }

  static bool is_normal(double value) {
    const double size = value < 0 ? -value : value;
    return size >= FLT_MIN && size <= FLT_MAX;
  }

  float widened(std::uint16_t code) const {
    return dtype_ == Dtype::bfloat16 ? widen(BFloat16{code}) : widen(Float16{code});
  }

  std::uint16_t narrowed(float value) const {
    BFloat16 brain;
    Float16 half;
    narrow(value, brain);
    narrow(value, half);
    return dtype_ == Dtype::bfloat16 ? brain.bits : half.bits;
  }

  // The outputs, one after the other.
  template <typename T>
  std::vector<T> computed(Block block, const std::vector<double>& arguments) const {
    const int64_t count = int64_t(arguments.size());
    std::vector<T> found(kernel_.outputs * count), given(kernel_.inputs * kBlock, T(1));
    const void* inputs[kMaxOperands];
    void* outputs[kMaxOperands];
    const double* parameters = table_.parameters.data() + kernel_.numbers;
    for (int k = 0; k < kernel_.inputs; ++k) {
      inputs[k] = &given[k * kBlock];
      if (kernel_.places[k] != kTensor) given[k * kBlock] = T(parameters[k]);
    }
    for (int64_t first = 0; first < count; first += kBlock) {
      const int64_t n = std::min(kBlock, count - first);
      for (int64_t i = 0; i < n; ++i) {
        given[kernel_.argument * kBlock + i] = T(arguments[first + i]);
      }
      for (int k = 0; k < kernel_.outputs; ++k) outputs[k] = &found[k * count + first];
      block(n, inputs, outputs, table_.parameters.data(), true);
    }
    return found;
  }

  const Kernel& kernel_;
  const Blocks& blocks_;
  Dtype dtype_;
  Table& table_;
};

void look_up_values(const std::uint16_t* __restrict codes, const std::uint32_t* __restrict values,
                    int64_t n, std::uint32_t* __restrict found) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) found[i] = values[codes[i]];
}

// Multiplies by a factor. NaN if a product is not finite, here and below, else 0.
inline float multiply(float* products, const float* factor, int64_t n) {
  float odd = 0;
#pragma omp simd reduction(+ : odd)
  for (int64_t i = 0; i < n; ++i) {
    products[i] *= factor[i];
    odd += products[i] * 0.0f;
  }
  return odd;
}

// Stores products with a factor, or with a second one too.
template <bool kSecond>
float store_products_of(const std::uint32_t* found, const BFloat16* factor,
                        const BFloat16* second, int64_t n, BFloat16* to) {
  float odd = 0;
#pragma omp simd reduction(+ : odd)
  for (int64_t i = 0; i < n; ++i) {
    float product = from_bits(found[i]) * widen(factor[i]);
    if constexpr (kSecond) product *= widen(second[i]);
    odd += product * 0.0f;
    to[i] = BFloat16::of_number(product);
  }
  return odd;
}

// Whether every tensor is of a 16-bit type; parameters may be wider.
bool is_of_16_bits(const Kernel& kernel, const Call& call) {
  for (int k = 0; k < kernel.inputs + kernel.outputs; ++k) {
    const Operand& operand = k < kernel.inputs ? call.inputs[k] : call.outputs[k - kernel.inputs];
    const bool wide = operand.dtype == Dtype::float32 || operand.dtype == Dtype::float64;
    if (kernel.places[k] == kTensor && wide) return false;
  }
  return true;
}

// Whether every tensor is bfloat16 and dense.
bool is_dense_bfloat16(const Kernel& kernel, const Call& call) {
  for (int k = 0; k < kernel.inputs + kernel.outputs; ++k) {
    const Operand& operand = k < kernel.inputs ? call.inputs[k] : call.outputs[k - kernel.inputs];
    const bool lies_so = operand.dtype == Dtype::bfloat16 && is_dense(call, operand);
    if (kernel.places[k] == kTensor && !lies_so) return false;
  }
  return true;
}

// The table of a call whose tensors are of a 16-bit type; null where it is to be computed.
std::shared_ptr<const Table> table_of(
    const Kernel& kernel, const Blocks& blocks, const Call& call, ParallelFor parallel_for) {
  if (kernel.argument < 0 || call.elements < kLookedUp) return nullptr;
  const Operand& argument = call.inputs[kernel.argument];
  if (!is_dense(call, argument)) return nullptr;
  for (int k = 0; k < kernel.outputs; ++k) {
    const Operand& output = call.outputs[k];
    const bool stored = output.dtype == argument.dtype && !is_reduced(call, output);
    if (Table::is_stored(kernel, k) && !stored) return nullptr;
  }
  const auto made = std::make_shared<Table>();
  made->parameters.assign(call.numbers, call.numbers + kernel.numbers);
  for (int k = 0; k < kernel.inputs; ++k) {
    const Operand& input = call.inputs[k];
    made->parameters.push_back(0);
    if (kernel.places[k] == kTensor) continue;
    const auto is_zero = [](int64_t stride) { return stride == 0; };
    if (!std::all_of(input.strides, input.strides + call.dims, is_zero)) return nullptr;
    with_storage(input.dtype, [&](auto* storage) {
      made->parameters.back() = widen(*static_cast<decltype(storage)>(input.data));
    });
  }

  // Of each kernel and dtype the last one is kept, whichever thread made it.
  static auto* const kept = new std::shared_ptr<const Table>[2 * kKernelCount];
  auto& last = kept[2 * (&kernel - kKernels) + (argument.dtype == Dtype::float16)];
  const std::shared_ptr<const Table> found = std::atomic_load(&last);
  const std::size_t size = made->parameters.size() * sizeof(double);
  const bool same = found && !std::memcmp(found->parameters.data(), made->parameters.data(), size);
  if (same) return found;
  Filler(kernel, blocks, argument.dtype, *made).all(parallel_for);
  std::atomic_store(&last, std::shared_ptr<const Table>(made));
  return made;
}

// --- a call --------------------------------------------------------------------------------------

template <typename T>
class Run {
 public:
  // stored: what the block takes tensors as. table: null, or of what is looked up.
  Run(const Kernel& kernel, const Call& call, Block block, Dtype stored, const Table* table)
      : kernel_(kernel), call_(call), block_(block), stored_(stored), table_(table) {
    for (int k = 0; k < kernel.inputs; ++k) in_place_ &= lies_ready(k, call.inputs[k]);
    for (int k = 0; k < kernel.outputs; ++k) {
      const Operand& output = call.outputs[k];
      reduced_[k] = is_reduced(call, output);
      reducing_ |= reduced_[k] && output.data;
      in_place_ &= output.data && !reduced_[k] && lies_ready(kernel.inputs + k, output);
    }
    if (in_place_) {
      streams_ = may_stream();
      return;
    }
    for (int k = 0; table && k < kernel.outputs; ++k) direct_[k] = needs_no_buffers(k);
    cut_ = cut(call, reducing_);
    if (reducing_) partials_.resize(cut_.tasks * kernel.outputs);
  }

  void all(ParallelFor parallel_for) {
    if (in_place_) {
      const int64_t tasks = ceil_div(call_.elements, kTask);
      if (tasks == 1) return compute_in_place(0, 1);
      return parallel_for(tasks, [](void* run, int64_t first, int64_t last) {
        auto* const self = static_cast<Run*>(run);
        self->streams_ ? self->compute_streamed(first, last) : self->compute_in_place(first, last);
      }, this);
    }
    const auto body = [](void* run, int64_t first, int64_t last) {
      for (; first < last; ++first) static_cast<Run*>(run)->compute(first);
    };
    if (cut_.tasks == 1) body(this, 0, 1); else parallel_for(cut_.tasks, body, this);
    for (output_ = 0; output_ < kernel_.outputs; ++output_) {
      if (!reduced_[output_] || !call_.outputs[output_].data) continue;
      size_ = 1;
      for (int d = 0; d < call_.dims; ++d) {
        if (call_.outputs[output_].strides[d] != 0) size_ *= call_.sizes[d];
      }
      parallel_for(ceil_div(size_, kTask), [](void* run, int64_t first, int64_t last) {
        static_cast<Run*>(run)->combine(first * kTask, last * kTask);
      }, this);
    }
  }

 private:
  // The dtype that the block takes an operand as; `place`: among inputs and outputs.
  Dtype taken(int place) const {
    return kernel_.places[place] == kTensor ? stored_ : dtype_of<T>;
  }

  bool lies_ready(int place, const Operand& operand) const {
    return operand.dtype == taken(place) && is_dense(call_, operand);
  }

  // Bytes between elements of an operand that the block takes as it lies.
  int64_t size(int place) const {
    return taken(place) == Dtype::bfloat16 ? sizeof(BFloat16) : sizeof(T);
  }

  char* lying(int place, const Operand& operand, int64_t offset) const {
    return static_cast<char*>(operand.data) + offset * size(place);
  }

  // Whether the results outgrow the caches, so that nobody would find them there, and may stream.
  bool may_stream() const {
    int64_t bytes = 0;
    for (int k = 0; k < kernel_.outputs; ++k) bytes += call_.elements * size(kernel_.inputs + k);
    if (bytes < kMany) return false;
    for (int k = 0; k < kernel_.outputs; ++k) {
      const int place = kernel_.inputs + k;
      const char* const to = lying(place, call_.outputs[k], 0);
      if (!autofn::may_stream(to, call_.elements * size(place))) return false;
    }
    return true;
  }

  // Buffers start at multiples of 64 bytes.
  template <typename S>
  static S* at_line(S* memory) {
    return memory + (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64 / sizeof(S);
  }

  void compute_streamed(int64_t first, int64_t last) {
    const int64_t end = std::min(last * kTask, call_.elements);
    const std::unique_ptr<double[]> memory(new double[(kernel_.outputs + 1) * kStreamed]);
    const void* inputs[kMaxOperands];
    void* outputs[kMaxOperands];
    for (int k = 0; k < kernel_.outputs; ++k) outputs[k] = at_line(memory.get()) + k * kStreamed;
    for (int64_t at = first * kTask; at < end; at += kStreamed) {
      const int64_t n = std::min(end - at, kStreamed);
      for (int k = 0; k < kernel_.inputs; ++k) inputs[k] = lying(k, call_.inputs[k], at);
      block_(n, inputs, outputs, call_.numbers, false);
      for (int k = 0; k < kernel_.outputs; ++k) {
        const int place = kernel_.inputs + k;
        stream(static_cast<const char*>(outputs[k]), n * size(place),
               lying(place, call_.outputs[k], at));
      }
    }
    finish_streams();
  }

  void compute_in_place(int64_t first, int64_t last) {
    const int64_t end = std::min(last * kTask, call_.elements);
    const void* inputs[kMaxOperands];
    void* outputs[kMaxOperands];
    for (int64_t at = first * kTask; at < end; at += kTask) {
      for (int k = 0; k < kernel_.inputs; ++k) inputs[k] = lying(k, call_.inputs[k], at);
      for (int k = 0; k < kernel_.outputs; ++k) {
        outputs[k] = lying(kernel_.inputs + k, call_.outputs[k], at);
      }
      block_(std::min(end - at, kTask), inputs, outputs, call_.numbers, false);
    }
  }

  void compute(int64_t number) {
    Range task = {number / cut_.across * cut_.task_rows, cut_.task_rows,
                  number % cut_.across * cut_.task_columns, cut_.task_columns};
    task.rows = std::min(task.rows, cut_.rows - task.row);
    task.columns = std::min(task.columns, cut_.columns - task.column);

    const std::unique_ptr<T[]> memory(new T[(kernel_.inputs + kernel_.outputs + 1) * kBlock]);
    T* buffer = at_line(memory.get());
    std::vector<Reader<T>> readers;
    readers.reserve(kernel_.inputs);
    for (int k = 0; k < kernel_.inputs; ++k, buffer += kBlock) {
      readers.emplace_back(call_, call_.inputs[k], buffer);
    }
    T* buffers[kMaxOperands];
    std::vector<Summer<T>> summers;
    summers.reserve(kernel_.outputs);
    for (int k = 0; k < kernel_.outputs; ++k, buffer += kBlock) {
      buffers[k] = buffer;
      if (wants_sum(k)) summers.emplace_back(call_, call_.outputs[k], task, cut_.by_rows);
    }

    const int64_t rows = cut_.by_rows ? kBlock / cut_.columns : 1;
    for (int64_t r = 0; r < task.rows; r += rows) {
      for (int64_t c = 0; c < task.columns; c += kBlock) {
        const Range block = {task.row + r, std::min(rows, task.rows - r), task.column + c,
                             std::min(kBlock, task.columns - c)};
        compute(block, readers.data(), buffers, summers.data());
      }
    }

    int summer = 0;
    for (int k = 0; k < kernel_.outputs; ++k) {
      if (wants_sum(k)) partials_[number * kernel_.outputs + k] = summers[summer++].finish();
    }
  }

  void compute(const Range& block, Reader<T>* readers, T* const* buffers, Summer<T>* summers) {
    void* outputs[kMaxOperands];
    bool done = false;
    if constexpr (sizeof(T) == sizeof(float)) {
      done = table_ && look_up(block, readers, buffers, outputs);
    }
    if (!done) {
      for (int k = 0; k < kernel_.outputs; ++k) outputs[k] = place(k, block, buffers);
      compute_elements(block, readers, outputs);
    }
    for (int k = 0; k < kernel_.outputs; ++k) {
      const Operand& output = call_.outputs[k];
      if (wants_sum(k)) {
        (summers++)->add(static_cast<const T*>(outputs[k]), block);
      } else if (output.data && outputs[k] == buffers[k]) {
        with_storage(output.dtype, [&](auto* storage) {
          using S = std::remove_pointer_t<decltype(storage)>;
          write(buffers[k], block.elements(), to_write<S>(k, block));
        });
      }
    }
  }

  int64_t offset(const Range& block) const { return block.row * cut_.columns + block.column; }

  // Where a block of an output is stored, which is fetched a block ahead.
  template <typename S>
  S* to_write(int k, const Range& block) const {
    S* to = static_cast<S*>(call_.outputs[k].data) + offset(block);
    prefetch_to_write(to + block.elements(), block.elements());
    return to;
  }

  // Where a block of an output is computed.
  void* place(int k, const Range& block, T* const* buffers) const {
    const Operand& output = call_.outputs[k];
    const int place = kernel_.inputs + k;
    const bool here = output.data && !reduced_[k] && output.dtype == taken(place);
    return here ? static_cast<void*>(lying(place, output, offset(block))) : buffers[k];
  }

  void compute_elements(const Range& block, Reader<T>* readers, void* const* outputs) {
    const void* inputs[kMaxOperands];
    bool uniform = true;
    for (int k = 0; k < kernel_.inputs; ++k) {
      uniform &= kernel_.places[k] == kTensor || readers[k].is_uniform(block);
    }
    for (int k = 0; k < kernel_.inputs; ++k) {
      if (taken(k) == dtype_of<T>) {
        inputs[k] = readers[k].at(block, cut_.columns, uniform && kernel_.places[k] != kTensor);
      } else {
        inputs[k] = lying(k, call_.inputs[k], offset(block));
      }
    }
    block_(block.elements(), inputs, outputs, call_.numbers, uniform);
  }

  // Whether the block's outputs are products of what is looked up; else they are to be computed.
  // `outputs`: where each is, null if it is stored already.
  bool look_up(
      const Range& block, Reader<float>* readers, float* const* buffers, void** outputs) {
    const void* argument = call_.inputs[kernel_.argument].data;
    const auto* codes = static_cast<const std::uint16_t*>(argument) + offset(block);
    const int64_t n = block.elements();
    prefetch(codes + n, n);
    const float* factors[kMaxOperands] = {};
    float odd = 0;  // NaN where a product is
    for (int k = 0; k < kernel_.outputs; ++k) {
      outputs[k] = nullptr;
      if (!call_.outputs[k].data) continue;
      std::uint32_t found[kBlock];
      look_up_values(codes, &table_->values[k * kCodes], n, found);
      if (Table::is_stored(kernel_, k)) {
        auto* stored = to_write<std::uint16_t>(k, block);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) stored[i] = std::uint16_t(found[i]);
      } else if (direct_[k]) {
        odd += store_products(k, block, found);
      } else {
        outputs[k] = buffers[k];
        for (int64_t i = 0; i < n; ++i) buffers[k][i] = from_bits(found[i]);
        for (int j = 0; j < kernel_.inputs; ++j) {
          if (!is_factor(j, k)) continue;
          if (!factors[j]) factors[j] = readers[j].at(block, cut_.columns);
          odd += multiply(buffers[k], factors[j], n);
        }
      }
    }
    return odd == 0;
  }

  bool is_factor(int input, int output) const { return kernel_.factors[output] >> input & 1; }

  // Whether an output and its factors, at most two, are dense bfloat16.
  bool needs_no_buffers(int output) const {
    const auto lies_so = [&](const Operand& operand) {
      return operand.dtype == Dtype::bfloat16 && is_dense(call_, operand);
    };
    int factors = 0;
    for (int k = 0; k < kernel_.inputs; ++k) {
      if (!is_factor(k, output)) continue;
      if (!lies_so(call_.inputs[k]) || ++factors > 2) return false;
    }
    return !reduced_[output] && lies_so(call_.outputs[output]);
  }

  float store_products(int output, const Range& block, const std::uint32_t* found) const {
    const BFloat16* factors[2] = {};
    for (int k = 0, count = 0; k < kernel_.inputs; ++k) {
      if (!is_factor(k, output)) continue;
      factors[count] = static_cast<const BFloat16*>(call_.inputs[k].data) + offset(block);
      prefetch(factors[count++] + block.elements(), block.elements());
    }
    BFloat16* to = to_write<BFloat16>(output, block);
    const auto store = factors[1] ? store_products_of<true> : store_products_of<false>;
    return store(found, factors[0], factors[1], block.elements(), to);
  }

  bool wants_sum(int k) const { return reduced_[k] && call_.outputs[k].data; }

  // Adds up the tasks' sums of the elements [first, last) of an output, in their order.
  void combine(int64_t first, int64_t last) {
    last = std::min(last, size_);
    std::vector<double> sums(last - first);
    for (int64_t task = 0; task < cut_.tasks; ++task) {
      const Partial& partial = partials_[task * kernel_.outputs + output_];
      const int64_t end = partial.first + int64_t(partial.sums.size());
      for (int64_t i = std::max(first, partial.first); i < std::min(last, end); ++i) {
        sums[i - first] += partial.sums[i - partial.first];
      }
    }
    const Operand& output = call_.outputs[output_];
    with_storage(output.dtype, [&](auto* storage) {
      using S = std::remove_pointer_t<decltype(storage)>;
      write(sums.data(), last - first, static_cast<S*>(output.data) + first);
    });
  }

  const Kernel& kernel_;
  const Call& call_;
  Block block_;
  Dtype stored_;
  const Table* table_;
  bool in_place_ = true, streams_ = false, reducing_ = false;
  bool reduced_[kMaxOperands];
  bool direct_[kMaxOperands];  // what is looked up is stored without a detour by buffers
  Cut cut_;
  std::vector<Partial> partials_;  // per task and output
  int output_ = 0;                 // which one `combine` adds up
  int64_t size_ = 0;               // its elements
};

}  // namespace

void run_on_cpu(int index, const Call& call, ParallelFor parallel_for) {
  const Kernel& kernel = kKernels[index];
  const Blocks& blocks = kBlocks[index];
  const auto run = [&](auto compute, Block block, Dtype stored, const Table* table = nullptr) {
    Run<decltype(compute)>(kernel, call, block, stored, table).all(parallel_for);
  };
  if (call.compute == Dtype::float64) return run(0.0, blocks.float64, Dtype::float64);
  if (!is_of_16_bits(kernel, call)) return run(0.0f, blocks.float32, Dtype::float32);
  const auto table = table_of(kernel, blocks, call, parallel_for);
  if (table || !is_dense_bfloat16(kernel, call)) {
    return run(0.0f, blocks.of_16_bits, Dtype::float32, table.get());
  }
  run(0.0f, blocks.bfloat16, Dtype::bfloat16);
}

}  // namespace autofn
