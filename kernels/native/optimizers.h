// The optimizers' updates, one template each; defined in reference/optimizers.py, operation for operation.
//
// `values` and `grads` are float[size]. A kind uses the state that it has: `first` and `second` are float[size], or one
// float of a row where its name says so; `scratch` is room for float[size].
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace geartrain {

struct Coefficients {
    float divisor, l2, rate, one_minus_beta1, one_minus_beta2, root_scale, eps;
    float l1, beta, step_scale, lr, min_weight, max_weight;
};

using CoefficientArray = std::array<float, 13>;

inline Coefficients coefficients(const CoefficientArray& c) {
    return {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12]};
}

struct Sgd {
    static constexpr size_t state_width(size_t) { return 0; }

    static void update(float* __restrict values, float*, float*, float*, const float* __restrict grads, size_t size,
                       const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            values[i] -= c.rate * mean;
        }
    }
};

struct Average {
    static void update(float* __restrict values, float*, float*, float*, const float* __restrict grads, size_t size,
                       const Coefficients& c) {
        for (size_t i = 0; i < size; i++) values[i] += c.rate * (grads[i] / c.divisor - values[i]);
    }
};

struct Adagrad {
    static constexpr size_t state_width(size_t dim) { return dim; }

    static void update(float* __restrict values, float* __restrict first, float*, float*,
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

    static void update(float* __restrict values, float* __restrict first, float* __restrict second, float*,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            first[i] += c.one_minus_beta1 * (mean - first[i]);
            second[i] += c.one_minus_beta2 * (mean * mean - second[i]);
            values[i] -= c.rate * (first[i] / (std::sqrt(second[i]) / c.root_scale + c.eps));
        }
    }
};

// The mean square of x: eight partial sums, a tree over them, then the rest one by one, an order that one AVX register
// can follow; then divided by the size.
inline float mean_square(const float* x, size_t size) {
    float lanes[8] = {};
    const size_t whole = size / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) {
        for (size_t lane = 0; lane < 8; lane++) lanes[lane] += x[i + lane] * x[i + lane];
    }
    for (size_t width = 4; width > 0; width /= 2) {
        for (size_t lane = 0; lane < width; lane++) lanes[lane] += lanes[lane + width];
    }
    float sum = lanes[0];
    for (size_t i = whole; i < size; i++) sum += x[i] * x[i];
    return sum / static_cast<float>(size);
}

// first[0] is the row's sum of mean squares.
struct RowwiseAdagrad {
    static constexpr size_t state_width(size_t) { return 1; }

    static void update(float* __restrict values, float* __restrict first, float*, float* __restrict scratch,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) scratch[i] = grads[i] / c.divisor + c.l2 * values[i];
        first[0] += mean_square(scratch, size);
        const float rate = c.rate / (std::sqrt(first[0]) + c.eps);
        for (size_t i = 0; i < size; i++) values[i] -= rate * scratch[i];
    }
};

// first[size] is the first moment, second[0] the row's running mean square.
struct RowwiseAdam {
    static constexpr size_t state_width(size_t dim) { return dim + 1; }

    static void update(float* __restrict values, float* __restrict first, float* __restrict second,
                       float* __restrict scratch, const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) scratch[i] = grads[i] / c.divisor + c.l2 * values[i];
        for (size_t i = 0; i < size; i++) first[i] += c.one_minus_beta1 * (scratch[i] - first[i]);
        second[0] += c.one_minus_beta2 * (mean_square(scratch, size) - second[0]);
        const float root = std::sqrt(second[0]) / c.root_scale + c.eps;
        for (size_t i = 0; i < size; i++) values[i] -= c.rate * (first[i] / root);
    }
};

// first is z, second the sum of squares (McMahan et al. 2013).
struct Ftrl {
    static constexpr size_t state_width(size_t dim) { return 2 * dim; }

    static void update(float* __restrict values, float* __restrict first, float* __restrict second, float*,
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
