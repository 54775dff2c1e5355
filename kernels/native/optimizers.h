// The optimizers' updates, one template each; defined in reference/optimizers.py, operation for operation.
//
// `values`, `first`, `second` and `grads` are float[size]; a kind uses the state vectors that it has.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace geartrain {

struct Coefficients {
    float divisor, l2, rate, one_minus_beta1, one_minus_beta2, root_scale, eps;
};

using CoefficientArray = std::array<float, 7>;

inline Coefficients coefficients(const CoefficientArray& c) { return {c[0], c[1], c[2], c[3], c[4], c[5], c[6]}; }

struct Sgd {
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
    static void update(float* __restrict values, float* __restrict first, float*, const float* __restrict grads,
                       size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) {
            const float mean = grads[i] / c.divisor + c.l2 * values[i];
            first[i] += mean * mean;
            values[i] -= c.rate * (mean / (std::sqrt(first[i]) + c.eps));
        }
    }
};

struct Adam {
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

// One float of state per row, first[0]; second[size] is room for the mean gradient.
struct RowwiseAdagrad {
    static void update(float* __restrict values, float* __restrict first, float* __restrict second,
                       const float* __restrict grads, size_t size, const Coefficients& c) {
        for (size_t i = 0; i < size; i++) second[i] = grads[i] / c.divisor + c.l2 * values[i];
        first[0] += sum_of_squares(second, size) / static_cast<float>(size);
        const float rate = c.rate / (std::sqrt(first[0]) + c.eps);
        for (size_t i = 0; i < size; i++) values[i] -= rate * second[i];
    }

private:
    // Eight partial sums, a tree over them, then the rest one by one: an order that one AVX register can follow.
    static float sum_of_squares(const float* x, size_t size) {
        float lanes[8] = {};
        size_t i = 0;
        for (; i + 8 <= size; i += 8) {
            for (size_t lane = 0; lane < 8; lane++) lanes[lane] += x[i + lane] * x[i + lane];
        }
        for (size_t width = 4; width > 0; width /= 2) {
            for (size_t lane = 0; lane < width; lane++) lanes[lane] += lanes[lane + width];
        }
        float sum = lanes[0];
        for (; i < size; i++) sum += x[i] * x[i];
        return sum;
    }
};

}  // namespace geartrain
