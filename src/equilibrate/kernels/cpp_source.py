"""The C++ of `kernels.cpp`: templates over float and double, and names that Python can call."""

_OVER = """
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

struct Sums { double total = 0; int64_t count = 0; };

// Run over the n elements of one tensor in parts, by several threads where they are many. `run`
// takes where its part begins and how long it is. What the parts return is added up in their order,
// so that the sum is the same with any number of threads; it also rounds less than one long sum.
// Loops are in functions of their own: inside a lambda they are not known to be free of aliases.
template <typename Run> Sums over(int64_t n, int threads, Run run) {
  const int64_t part = 4096, parts = (n + part - 1) / part;
  std::vector<Sums> found(parts);
  auto one = [&](int64_t i) { found[i] = run(i * part, std::min(part, n - i * part)); };
  if (threads == 1 || parts < 8) {
    for (int64_t i = 0; i < parts; i++) one(i);
  } else {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < parts; i++) one(i);
  }
  Sums all;
  for (const Sums& each : found) {
    all.total += each.total;
    all.count += each.count;
  }
  return all;
}
"""

_MOVE = """
struct Numbers { double lr, momentum, shrink, limit, scale; int nesterov, threads; };

template <typename T> struct Divide {
  T damping, unseen, limit;
  template <bool limited> T run(T g, T d) const {
    const T size = std::abs(d), u = g / ((size == 0 ? unseen : size) + damping);
    return !limited ? u : u > limit ? limit : u < -limit ? -limit : u;
  }
};

template <typename T, bool limited, bool momentum, bool nesterov>
void move(T* p, const T* g, const T* d, T* b, int64_t n, Divide<T> by, Numbers s) {
  const T lr = s.lr, m = s.momentum, shrink = s.shrink, scale = s.scale;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    T u = by.template run<limited>(g[j], d[j]) * scale;
    if (momentum) {
      const T kept = b[j] = b[j] * m + u;
      u = nesterov ? u + m * kept : kept;
    }
    p[j] = p[j] * shrink - lr * u;
  }
}

template <typename T, bool limited>
void step(int64_t count, const int64_t* n, T** p, T** g, T** d, T** b, const double* damping,
          const double* unseen, Numbers s) {
  auto run = !b ? move<T, limited, false, false>
                : s.nesterov ? move<T, limited, true, true> : move<T, limited, true, false>;
  for (int64_t i = 0; i < count; i++) {
    const Divide<T> by{T(damping[i]), T(unseen[i]), T(s.limit)};
    over(n[i], s.threads, [=](int64_t at, int64_t size) {
      run(p[i] + at, g[i] + at, d[i] + at, b ? b[i] + at : nullptr, size, by, s);
      return Sums();
    });
  }
}

template <typename T> Sums sum_of_squares(const T* g, const T* d, int64_t n, Divide<T> by) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < n; j++) {
    const double u = by.template run<true>(g[j], d[j]);
    total += u * u;
  }
  return {total, 0};
}

template <typename T>
void squares(int64_t count, const int64_t* n, T** g, T** d, const double* damping,
             const double* unseen, double limit, double* found, int threads) {
  for (int64_t i = 0; i < count; i++) {
    const Divide<T> by{T(damping[i]), T(unseen[i]), T(limit)};
    found[i] = over(n[i], threads, [=](int64_t at, int64_t size) {
      return sum_of_squares(g[i] + at, d[i] + at, size, by);
    }).total;
  }
}
"""

_FOLD = """
// Squares of floats neither overflow nor vanish in double; for doubles there is hypot.
template <typename T> inline T root_of_squares(T a, T b) {
  if constexpr (std::is_same_v<T, float>) return std::sqrt(double(a) * a + double(b) * b);
  else return std::hypot(a, b);
}

template <typename T, bool roots>
Sums mix(T* d, const T* product, int64_t n, T old, T entering) {
  double total = 0;
  int64_t seen = 0;
#pragma omp simd reduction(+ : total, seen)
  for (int64_t j = 0; j < n; j++) {
    const T a = old * d[j], b = entering * product[j];
    const T mean = d[j] = roots ? root_of_squares(a, b) : a + b;
    total += std::abs(mean);
    seen += mean != 0;
  }
  return {total, seen};
}

template <typename T>
void fold(int64_t count, const int64_t* n, T** d, T** product, const double* old,
          const double* entering, int roots, double* totals, int64_t* seen, int threads) {
  auto run = roots ? mix<T, true> : mix<T, false>;
  for (int64_t i = 0; i < count; i++) {
    const Sums found = over(n[i], threads, [=](int64_t at, int64_t size) {
      return run(d[i] + at, product[i] + at, size, old[i], entering[i]);
    });
    totals[i] = found.total;
    seen[i] = found.count;
  }
}
"""

_EXPORTED = """
extern "C" void step_TYPE(
    int64_t count, const int64_t* n, TYPE** p, TYPE** g, TYPE** d, TYPE** b,
    const double* damping, const double* unseen, double lr, double momentum, double shrink,
    double limit, double scale, int nesterov, int threads) {
  auto run = std::isinf(limit) ? step<TYPE, false> : step<TYPE, true>;
  run(count, n, p, g, d, b, damping, unseen,
      Numbers{lr, momentum, shrink, limit, scale, nesterov, threads});
}
extern "C" void squares_TYPE(
    int64_t count, const int64_t* n, TYPE** g, TYPE** d, const double* damping,
    const double* unseen, double limit, double* found, int threads) {
  squares<TYPE>(count, n, g, d, damping, unseen, limit, found, threads);
}
extern "C" void fold_TYPE(
    int64_t count, const int64_t* n, TYPE** d, TYPE** product, const double* old,
    const double* entering, int roots, double* totals, int64_t* seen, int threads) {
  fold<TYPE>(count, n, d, product, old, entering, roots, totals, seen, threads);
}
"""


def source(types: list[str]) -> str:
    """Return the whole source for some C++ types."""
    named = [_EXPORTED.replace("TYPE", name) for name in types]
    return "".join([_OVER, _MOVE, _FOLD, *named])
