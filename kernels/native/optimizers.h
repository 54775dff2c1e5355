// The optimizers' updates, one template each; defined in reference/optimizers.py, operation for operation.
//
// `values`, `grads` and the state vectors `first` and `second` are float[size]; a kind uses those that it has.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "floats.h"

namespace geartrain {

struct Coefficients {
    float divisor, l2, rate, one_minus_beta1, one_minus_beta2, root_scale, eps;
    float l1, beta, step_scale, lr, min_weight, max_weight, most_windows;

    // For a row whose update stands for `windows` windows.
    [[gnu::always_inline]] Coefficients over(float windows) const {
        Coefficients c = *this;
        c.divisor *= windows;
        c.rate *= windows;
        c.step_scale *= windows;
        return c;
    }
};

using CoefficientArray = std::array<float, 14>;

inline Coefficients coefficients(const CoefficientArray& c) {
    return {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12], c[13]};
}

struct Sgd {
    static constexpr size_t state_width(size_t) { return 0; }

    static void update(float* __restrict values, float*, float*, const float* __restrict grads, size_t size,
                       const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            values[i] -= c.rate * mean;
        }
    }
};

struct Average {
    static void update(float* __restrict values, float*, float*, const float* __restrict grads, size_t size,
                       const Coefficients& c) {
        for (size_t i = 0; i < size; i++) values[i] += c.rate * (grads[i] / c.divisor - values[i]);
    }
};

struct Adagrad {
    static constexpr size_t state_width(size_t dim) { return dim; }

    static void update(float* __restrict values, float* __restrict first, float*,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            first[i] += mean * mean;
            values[i] -= c.rate * (mean / (std::sqrt(first[i]) + c.eps));
        }
    }
};

struct Adam {
    static constexpr size_t state_width(size_t dim) { return 2 * dim; }

    static void update(float* __restrict values, float* __restrict first, float* __restrict second,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            first[i] += c.one_minus_beta1 * (mean - first[i]);
            second[i] += c.one_minus_beta2 * (mean * mean - second[i]);
            values[i] -= c.rate * (first[i] / (std::sqrt(second[i]) / c.root_scale + c.eps));
        }
    }
};

// Writes the gradient's mean, with l2 added, and returns its mean square: eight partial sums, a tree over them, then the
// rest one by one; then divided by the size.
inline float mean_gradient(float* __restrict mean, const float* __restrict grads, const float* __restrict values,
                           size_t size, const Coefficients& c) {
    const size_t whole = size / 8 * 8;
    Float8 squares = {};
    for (size_t i = 0; i < whole; i += 8) {
        const Float8 eight = load8(grads + i) / c.divisor + c.l2 * load8(values + i);
        store8(mean + i, eight);
        squares = i == 0 ? eight * eight : squares + eight * eight;
    }
    float sum = sum8(squares);
    for (size_t i = whole; i < size; i++) {
        mean[i] = grads[i] / c.divisor + c.l2 * values[i];
        sum += mean[i] * mean[i];
    }
    return sum / static_cast<float>(size);
}

// The optimizers with one number per row have `mean`, room for a row, in place of a second state vector.

// state[0] is the row's sum of mean squares.
struct RowwiseAdagrad {
    static constexpr size_t state_width(size_t) { return 1; }

    static void update(float* __restrict values, float* __restrict state, float* __restrict mean,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        state[0] += mean_gradient(mean, grads, values, size, c);
        const float rate = c.rate / (std::sqrt(state[0]) + c.eps);
        const size_t whole = size / 8 * 8;
        for (size_t i = 0; i < whole; i += 8) store8(values + i, load8(values + i) - rate * load8(mean + i));
        for (size_t i = whole; i < size; i++) values[i] -= rate * mean[i];
    }
};

// state[size] is the first moment, and behind it the row's running mean square.
struct RowwiseAdam {
    static constexpr size_t state_width(size_t dim) { return dim + 1; }

    static void update(float* __restrict values, float* __restrict state, float* __restrict mean,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        const float square = mean_gradient(mean, grads, values, size, c);
        state[size] += c.one_minus_beta2 * (square - state[size]);
        const float root = std::sqrt(state[size]) / c.root_scale + c.eps;
        for (size_t i = 0; i < size; i++) {
            state[i] += c.one_minus_beta1 * (mean[i] - state[i]);
            values[i] -= c.rate * (state[i] / root);
        }
    }
};

template <typename Kind>
constexpr bool kNeedsMean = std::is_same_v<Kind, RowwiseAdagrad> || std::is_same_v<Kind, RowwiseAdam>;

// first is z, second the sum of squares (McMahan et al. 2013).
struct Ftrl {
    static constexpr size_t state_width(size_t dim) { return 2 * dim; }

    static void update(float* __restrict values, float* __restrict first, float* __restrict second,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        if (c.lr == 0.0f) return;
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor;
            const float sum = second[i] + mean * mean;
            const float root = std::sqrt(sum);
            first[i] += mean - (root - std::sqrt(second[i])) / c.lr * values[i];
            second[i] = sum;
            const float excess = first[i] - std::copysign(c.l1, first[i]);
            const float solution = -excess / ((c.beta + root) / c.lr + c.l2);
            const float target = std::fabs(first[i]) <= c.l1 ? 0.0f : solution;
            values[i] += c.step_scale * (target - values[i]);
        }
    }
};

inline void clamp(float* values, size_t size, float low, float high) {
    for (size_t i = 0; i < size; i++) values[i] = std::min(std::max(values[i], low), high);
}

}  // namespace geartrain
