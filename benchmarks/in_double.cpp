// The quick functions in double, for benchmarks/primitives.py: the largest relative error over every
// float32, or one in `step`, against the C library's function. Links libmvec.
#include <cstdio>
#include <cstdlib>

#include "prelude.h"

namespace autofn {
#include AUTOFN_TEXT
}

namespace {

constexpr int kBlock = 4096;

// Infinitely wrong: NaN against a number, a wrong infinity, and what does not vanish where the
// truth does. What is subnormal may vanish.
double error(double y, double truth) {
  if (y != y && truth != truth) return 0.0;
  const double size = std::fabs(truth);
  if (size < 0x1p-1021 && size > 0.0) return std::fabs(y - truth) < 0x1p-1020 ? 0.0 : INFINITY;
  // Both are infinite in single precision, with whatever factors.
  if (std::fabs(y) > 0x1p+1022 && size > 0x1p+1022 && y * truth > 0.0) return 0.0;
  if (y == truth) return 0.0;
  const double found = std::fabs(y - truth) / size;
  return found == found ? found : INFINITY;
}

template <typename Own, typename Library>
void check(const char* name, std::uint64_t step, Own own, Library library) {
  static double x[kBlock], y[kBlock], truth[kBlock];
  double worst = 0.0, at = 0.0;
  for (std::uint64_t first = 0; first < std::uint64_t(1) << 32; first += kBlock * step) {
    for (int i = 0; i < kBlock; ++i) {
      const std::uint64_t pattern = first + i * step;
      x[i] = autofn::from_bits(static_cast<std::uint32_t>(pattern));
    }
#pragma omp simd
    for (int i = 0; i < kBlock; ++i) y[i] = own(x[i]);
#pragma omp simd
    for (int i = 0; i < kBlock; ++i) truth[i] = library(x[i]);
    for (int i = 0; i < kBlock; ++i) {
      const double e = error(y[i], truth[i]);
      if (e > worst) worst = e, at = x[i];
    }
  }
  std::printf("%s %.2f %a\n", name, std::log2(worst), at);
}

}  // namespace

int main(int, char** argv) {
  const std::uint64_t step = std::strtoull(argv[1], nullptr, 0);
  using namespace autofn;
  check("exp", step, [](double x) { return quick_exp(x); }, [](double x) { return std::exp(x); });
  check("decay", step, [](double x) { return quick_decay(std::fabs(x)); },
        [](double x) { return std::exp(-std::fabs(x)); });
  check("times_exp", step, [](double x) { return quick_times_exp(1.0, x); },
        [](double x) { return std::exp(x); });
  check("expm1", step, [](double x) { return quick_expm1(x); },
        [](double x) { return std::expm1(x); });
  check("tanh", step, [](double x) { return quick_tanh(x); },
        [](double x) { return std::tanh(x); });
  check("log", step, [](double x) { return quick_log(x); }, [](double x) { return std::log(x); });
  check("sin", step, [](double x) { return quick_sin(x); },
        [](double x) { return std::fabs(x) <= 0x1p+17 ? std::sin(x) : NAN; });
  check("cos", step, [](double x) { return quick_cos(x); },
        [](double x) { return std::fabs(x) <= 0x1p+17 ? std::cos(x) : NAN; });
  check("log1p", step, [](double x) { return quick_log1p(x); },
        [](double x) { return std::log1p(x); });
}
