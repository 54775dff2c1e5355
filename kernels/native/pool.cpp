// Pooling of rows into bags, its gradient, and the counts of shows and clicks; defined in reference/pool.py.
//
// Bags are slot-major: bag s * B + b. Every sum runs over keys in that order, whatever the order of the loops.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "floats.h"

namespace geartrain {

// Samples of one tile: its part of the pooled output stays in the first-level cache while all slots are written.
constexpr size_t kTile = 16;
constexpr int64_t kMostPrefetches = 2 * kTile;
constexpr size_t kAhead = 8;

// Calls `work` with the dim as a constant where it is one of those that most models use (16 values, and 17 with a
// first-order weight beside them), else with 0.
template <typename Work>
static void with_dim(size_t dim, Work work) {
    if (dim == 16) return work(std::integral_constant<size_t, 16>());
    if (dim == 17) return work(std::integral_constant<size_t, 17>());
    work(std::integral_constant<size_t, 0>());
}

template <size_t kDim>
static void pool_forward_as(const float* rows, const int64_t* inverse, const int64_t* offsets,
                            const uint8_t* mean_slots, const Cube<float>& out) {
    const size_t num_samples = out.shape(0), num_slots = out.shape(1), dim = kDim != 0 ? kDim : out.shape(2);
    for (size_t tile = 0; tile < num_samples; tile += kTile) {
        const size_t stop = std::min(num_samples, tile + kTile);
        for (size_t slot = 0; slot < num_slots; slot++) {
            if (slot + 1 < num_slots) {
                const int64_t* next = offsets + (slot + 1) * num_samples;
                const int64_t last = std::min(next[stop], next[tile] + kMostPrefetches);
                for (int64_t i = next[tile]; i < last; i++) {
                    prefetch_bytes<0>(rows + inverse[i] * dim, dim * sizeof(float));
                }
            }
            for (size_t sample = tile; sample < stop; sample++) {
                const size_t bag = slot * num_samples + sample;
                const int64_t begin = offsets[bag], end = offsets[bag + 1];
                float* to = out.data() + (sample * num_slots + slot) * dim;
                if (end - begin == 1) {
                    const float* __restrict from = rows + inverse[begin] * dim;
                    for (size_t d = 0; d < dim; d++) to[d] = 0.0f + from[d];  // a sum has no negative zero
                    continue;
                }
                for (size_t d = 0; d < dim; d++) to[d] = 0.0f;
                for (int64_t i = begin; i < end; i++) add_floats(to, rows + inverse[i] * dim, dim);
                if (mean_slots[slot] != 0 && end - begin > 1) {
                    divide_floats(to, to, static_cast<float>(end - begin), dim);
                }
            }
        }
    }
}

static void pool_forward(Matrix<const float> rows, Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets,
                         Vector<const uint8_t> mean_slots, Cube<float> out) {
    with_dim(out.shape(2), [&](auto dim) {
        pool_forward_as<dim>(rows.data(), inverse.data(), bag_offsets.data(), mean_slots.data(), out);
    });
}

template <size_t kDim>
static void pool_backward_as(const Cube<const float>& grad, const int64_t* inverse, const int64_t* offsets,
                             const uint8_t* mean_slots, float* out) {
    const size_t num_samples = grad.shape(0), num_slots = grad.shape(1), dim = kDim != 0 ? kDim : grad.shape(2);
    std::vector<float> mean(dim);
    for (size_t slot = 0; slot < num_slots; slot++) {
        for (size_t sample = 0; sample < num_samples; sample++) {
            const float* from = grad.data() + (sample * num_slots + slot) * dim;
            if (sample + kAhead < num_samples) {
                prefetch_bytes<0>(from + kAhead * num_slots * dim, dim * sizeof(float));
            }
            const size_t bag = slot * num_samples + sample;
            const int64_t begin = offsets[bag], end = offsets[bag + 1];
            if (mean_slots[slot] != 0 && end - begin > 1) {
                divide_floats(mean.data(), from, static_cast<float>(end - begin), dim);
                from = mean.data();
            }
            for (int64_t i = begin; i < end; i++) add_floats(out + inverse[i] * dim, from, dim);
        }
    }
}

static void pool_backward(Cube<const float> grad, Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets,
                          Vector<const uint8_t> mean_slots, Matrix<float> out) {
    std::fill_n(out.data(), out.size(), 0.0f);
    with_dim(grad.shape(2), [&](auto dim) {
        pool_backward_as<dim>(grad, inverse.data(), bag_offsets.data(), mean_slots.data(), out.data());
    });
}

static void count_shows(Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets, Vector<const float> labels,
                        Vector<float> shows, Vector<float> clicks) {
    const size_t num_samples = labels.shape(0), num_bags = bag_offsets.shape(0) - 1;
    const int64_t* offsets = bag_offsets.data();
    std::fill_n(shows.data(), shows.size(), 0.0f);
    std::fill_n(clicks.data(), clicks.size(), 0.0f);
    for (size_t first = 0; first < num_bags; first += num_samples) {
        for (size_t sample = 0; sample < num_samples; sample++) {
            const float label = labels.data()[sample];
            for (int64_t i = offsets[first + sample]; i < offsets[first + sample + 1]; i++) {
                shows.data()[inverse.data()[i]] += 1.0f;
                clicks.data()[inverse.data()[i]] += label;
            }
        }
    }
}

void bind_pool(nb::module_& module) {
    module.def("pool_forward", &pool_forward, array_argument("rows"), array_argument("inverse"),
               array_argument("bag_offsets"), array_argument("mean_slots"), array_argument("out"), WithoutGil());
    module.def("pool_backward", &pool_backward, array_argument("grad"), array_argument("inverse"),
               array_argument("bag_offsets"), array_argument("mean_slots"), array_argument("out"), WithoutGil());
    module.def("count_shows", &count_shows, array_argument("inverse"), array_argument("bag_offsets"),
               array_argument("labels"), array_argument("shows"), array_argument("clicks"), WithoutGil());
}

}  // namespace geartrain
