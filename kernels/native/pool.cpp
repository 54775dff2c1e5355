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
constexpr size_t kSamplesAhead = 8;
constexpr int64_t kKeysAhead = 16;

// Calls `work` with the dim as a constant where it is one of those that most models use (16 values, and 17 with a
// first-order weight beside them), else with 0.
template <typename Work>
static bool with_dim(size_t dim, Work work) {
    if (dim == 16) return work(std::integral_constant<size_t, 16>());
    if (dim == 17) return work(std::integral_constant<size_t, 17>());
    return work(std::integral_constant<size_t, 0>());
}

// Where the keys of each bag are, checked while they are read: a sweep of its own would cost a quarter of the work.
struct Bags {
    const int64_t *inverse, *offsets;
    uint64_t num_keys, num_rows;

    // Whether all keys are in bags, if those between are right.
    bool ends_are_right(size_t num_bags) const {
        return offsets[0] == 0 && static_cast<uint64_t>(offsets[num_bags]) == num_keys;
    }
    [[gnu::always_inline]] bool is_range(int64_t begin, int64_t end) const {
        return static_cast<uint64_t>(begin) <= static_cast<uint64_t>(end) && static_cast<uint64_t>(end) <= num_keys;
    }
    [[gnu::always_inline]] bool is_row(int64_t row) const { return static_cast<uint64_t>(row) < num_rows; }

    // Asks for the row of key i, which was not checked: an address that is none does no harm.
    template <int kForWriting>
    [[gnu::always_inline]] void prefetch_row(const float* rows, size_t dim, int64_t i) const {
        const uintptr_t row = reinterpret_cast<uintptr_t>(rows) + inverse[i] * dim * sizeof(float);
        prefetch_bytes<kForWriting>(reinterpret_cast<const void*>(row), dim * sizeof(float));
    }
    // Asks for the rows of bags [first, last), of some of the first keys if there are many.
    [[gnu::always_inline]] void prefetch_rows(const float* rows, size_t dim, size_t first, size_t last) const {
        const int64_t begin = offsets[first], end = offsets[last];
        if (!is_range(begin, end)) return;
        const int64_t stop = std::min(end, begin + kMostPrefetches);
        for (int64_t i = begin; i < stop; i++) prefetch_row<0>(rows, dim, i);
    }
};

template <size_t kDim>
static bool pool_forward_as(const float* rows, const Bags& bags, const uint8_t* mean_slots, const Cube<float>& out) {
    const size_t num_samples = out.shape(0), num_slots = out.shape(1), dim = kDim != 0 ? kDim : out.shape(2);
    float* const pooled = out.data();
    for (size_t tile = 0; tile < num_samples; tile += kTile) {
        const size_t stop = std::min(num_samples, tile + kTile);
        for (size_t slot = 0; slot < num_slots; slot++) {
            const bool is_last = slot + 1 == num_slots;
            const size_t next_slot = is_last ? 0 : slot + 1, next_tile = is_last ? stop : tile;
            bags.prefetch_rows(rows, dim, next_slot * num_samples + next_tile,
                               next_slot * num_samples + std::min(num_samples, next_tile + kTile));
            const bool is_mean = mean_slots[slot] != 0;
            for (size_t sample = tile; sample < stop; sample++) {
                const size_t bag = slot * num_samples + sample;
                const int64_t begin = bags.offsets[bag], end = bags.offsets[bag + 1];
                if (__builtin_expect(!bags.is_range(begin, end), 0)) return false;
                float* to = pooled + (sample * num_slots + slot) * dim;
                if (end - begin == 1) {
                    if (__builtin_expect(!bags.is_row(bags.inverse[begin]), 0)) return false;
                    add_to_zero(to, rows + bags.inverse[begin] * dim, dim);
                    continue;
                }
                std::fill_n(to, dim, 0.0f);
                for (int64_t i = begin; i < end; i++) {
                    if (__builtin_expect(!bags.is_row(bags.inverse[i]), 0)) return false;
                    add_floats(to, rows + bags.inverse[i] * dim, dim);
                }
                if (is_mean && end - begin > 1) divide_floats(to, to, static_cast<float>(end - begin), dim);
            }
        }
    }
    return true;
}

// These three return false, with the output half written, if the bags or a row of a key are not in range.
static bool pool_forward(Matrix<const float> rows, Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets,
                         Vector<const uint8_t> mean_slots, Cube<float> out) {
    const Bags bags{inverse.data(), bag_offsets.data(), inverse.shape(0), rows.shape(0)};
    if (!bags.ends_are_right(bag_offsets.shape(0) - 1)) return false;
    return with_dim(out.shape(2),
                    [&](auto dim) { return pool_forward_as<dim>(rows.data(), bags, mean_slots.data(), out); });
}

template <size_t kDim>
static bool pool_backward_as(const Cube<const float>& grad, const Bags& bags, const uint8_t* mean_slots, float* out) {
    const size_t num_samples = grad.shape(0), num_slots = grad.shape(1), dim = kDim != 0 ? kDim : grad.shape(2);
    const int64_t num_keys = static_cast<int64_t>(bags.num_keys);
    std::vector<float> mean(dim);
    for (size_t slot = 0; slot < num_slots; slot++) {
        const bool is_mean = mean_slots[slot] != 0;
        for (size_t sample = 0; sample < num_samples; sample++) {
            const float* from = grad.data() + (sample * num_slots + slot) * dim;
            if (sample + kSamplesAhead < num_samples) {
                prefetch_bytes<0>(from + kSamplesAhead * num_slots * dim, dim * sizeof(float));
            }
            const size_t bag = slot * num_samples + sample;
            const int64_t begin = bags.offsets[bag], end = bags.offsets[bag + 1];
            if (__builtin_expect(!bags.is_range(begin, end), 0)) return false;
            if (begin < num_keys - kKeysAhead) bags.prefetch_row<1>(out, dim, begin + kKeysAhead);
            if (is_mean && end - begin > 1) {
                divide_floats(mean.data(), from, static_cast<float>(end - begin), dim);
                from = mean.data();
            }
            for (int64_t i = begin; i < end; i++) {
                if (__builtin_expect(!bags.is_row(bags.inverse[i]), 0)) return false;
                add_floats(out + bags.inverse[i] * dim, from, dim);
            }
        }
    }
    return true;
}

static bool pool_backward(Cube<const float> grad, Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets,
                          Vector<const uint8_t> mean_slots, Matrix<float> out) {
    const Bags bags{inverse.data(), bag_offsets.data(), inverse.shape(0), out.shape(0)};
    if (!bags.ends_are_right(bag_offsets.shape(0) - 1)) return false;
    std::fill_n(out.data(), out.size(), 0.0f);
    return with_dim(grad.shape(2),
                    [&](auto dim) { return pool_backward_as<dim>(grad, bags, mean_slots.data(), out.data()); });
}

static bool count_shows(Vector<const int64_t> inverse, Vector<const int64_t> bag_offsets, Vector<const float> labels,
                        Vector<float> shows, Vector<float> clicks) {
    const size_t num_samples = labels.shape(0), num_bags = bag_offsets.shape(0) - 1;
    const Bags bags{inverse.data(), bag_offsets.data(), inverse.shape(0), shows.shape(0)};
    if (!bags.ends_are_right(num_bags)) return false;
    std::fill_n(shows.data(), shows.size(), 0.0f);
    std::fill_n(clicks.data(), clicks.size(), 0.0f);
    for (size_t first = 0; first < num_bags; first += num_samples) {
        for (size_t sample = 0; sample < num_samples; sample++) {
            const float label = labels.data()[sample];
            const int64_t begin = bags.offsets[first + sample], end = bags.offsets[first + sample + 1];
            if (__builtin_expect(!bags.is_range(begin, end), 0)) return false;
            for (int64_t i = begin; i < end; i++) {
                const int64_t row = bags.inverse[i];
                if (__builtin_expect(!bags.is_row(row), 0)) return false;
                shows.data()[row] += 1.0f;
                clicks.data()[row] += label;
            }
        }
    }
    return true;
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
