// Pooling of rows into bags, its gradient, and the counts of shows and clicks; defined in reference/pool.py.
//
// Bags are slot-major: bag s * B + b. Every sum runs over keys in that order, whatever the order of the loops.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "arrays.h"
#include "common_dims.h"
#include "floats.h"

namespace geartrain {

// Samples of one tile: its part of the pooled output is to stay in the second-level cache while all slots are written.
constexpr size_t kTile = 64;
// Keys between a prefetch of a row and its use. Past the end of a tile they are of the same slot in the next one.
constexpr size_t kAhead = 16;

// The same for pooled values and their gradients, which come from memory, in samples: 8 KiB of every slot.
static size_t samples_ahead(size_t dim) {
    return std::max<size_t>(8192 / std::max<size_t>(dim * sizeof(float), 64), 1);
}

// Asks for `dim` floats that begin `distance` floats behind `from`. Nothing need be there: an address that is none does
// no harm.
template <int kForWriting>
[[gnu::always_inline]] static inline void prefetch_behind(const float* from, size_t distance, size_t dim) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(from) + distance * sizeof(float);
    prefetch_bytes<kForWriting>(reinterpret_cast<const void*>(address), dim * sizeof(float));
}

using Offsets = std::optional<Vector<const int32_t>>;

// Where the keys of bags are, checked while they are visited: a sweep of its own would cost a quarter of the work.
struct Bags {
    const int32_t *inverse, *offsets;  // no offsets where every bag has one key
    size_t num_keys, num_rows;

    Bags(const Vector<const int32_t>& keys, const Offsets& bag_offsets, size_t rows)
        : inverse(keys.data()),
          offsets(bag_offsets ? bag_offsets->data() : nullptr),
          num_keys(keys.shape(0)),
          num_rows(rows) {}

    // Whether all keys are in bags, if those between are right.
    bool ends_are_right(size_t num_bags) const {
        if (offsets == nullptr) return num_keys == num_bags;
        return offsets[0] == 0 && static_cast<size_t>(offsets[num_bags]) == num_keys;
    }

    // Calls pool(i, at, size) for the bags [first, first + num_bags) in order: bag first + i has `size` keys from
    // number `at` on. False when offsets are wrong, or pool says so.
    template <typename Pool>
    [[gnu::always_inline]] bool each(size_t first, size_t num_bags, Pool pool) const {
        if (offsets == nullptr) {
            for (size_t i = 0; i < num_bags; i++) {
                if (__builtin_expect(!pool(i, first + i, 1), 0)) return false;
            }
            return true;
        }
        size_t at = static_cast<size_t>(offsets[first]);
        if (at > num_keys) return false;
        for (size_t i = 0; i < num_bags; i++) {
            const size_t size = static_cast<size_t>(offsets[first + i + 1]) - at;
            if (__builtin_expect(size > num_keys - at, 0)) return false;  // huge where offsets fall
            if (__builtin_expect(!pool(i, at, size), 0)) return false;
            at += size;
        }
        return true;
    }

    // Calls visit(row) with the row of a key, if that is one.
    template <typename Visit>
    [[gnu::always_inline]] bool row(size_t at, Visit visit) const {
        const size_t number = static_cast<size_t>(inverse[at]);
        if (__builtin_expect(number >= num_rows, 0)) return false;
        visit(number);
        return true;
    }

    // Asks for the row of a later key, which was not checked.
    template <int kForWriting>
    [[gnu::always_inline]] void prefetch_row(const float* rows, size_t dim, size_t at) const {
        const size_t number = static_cast<size_t>(inverse[std::min(at + kAhead, num_keys - 1)]);
        prefetch_behind<kForWriting>(rows, number * dim, dim);
    }
};

// Writes the bags of one slot in the samples of one tile.
template <size_t kDim>
static bool pool_tile(const float* rows, const Bags& bags, bool is_mean, const Cube<float>& out, size_t slot,
                      size_t tile) {
    const size_t num_samples = out.shape(0), num_slots = out.shape(1), dim = kDim != 0 ? kDim : out.shape(2);
    const size_t stride = num_slots * dim, ahead = samples_ahead(dim) * stride;
    float* const to = out.data() + tile * stride + slot * dim;
    return bags.each(slot * num_samples + tile, std::min(kTile, num_samples - tile),
                     [&](size_t sample, size_t at, size_t size) __attribute__((always_inline)) {
        float* const pooled = to + sample * stride;
        prefetch_behind<1>(pooled, ahead, dim);
        if (size == 1) {
            bags.prefetch_row<0>(rows, dim, at);
            return bags.row(at, [&](size_t row) { add_to_zero(pooled, rows + row * dim, dim); });
        }
        std::fill_n(pooled, dim, 0.0f);
        for (const size_t end = at + size; at < end; at++) {
            bags.prefetch_row<0>(rows, dim, at);
            if (!bags.row(at, [&](size_t row) { add_floats(pooled, rows + row * dim, dim); })) return false;
        }
        if (is_mean && size > 1) divide_floats(pooled, pooled, static_cast<float>(size), dim);
        return true;
    });
}

template <size_t kDim>
static bool pool_forward_as(const float* rows, const Bags& bags, const uint8_t* mean_slots, const Cube<float>& out) {
    for (size_t tile = 0; tile < out.shape(0); tile += kTile) {
        for (size_t slot = 0; slot < out.shape(1); slot++) {
            if (!pool_tile<kDim>(rows, bags, mean_slots[slot] != 0, out, slot, tile)) return false;
        }
    }
    return true;
}

// These three return false, with the output half written, if the bags or a row of a key are not in range.
static bool pool_forward(Matrix<const float> rows, Vector<const int32_t> inverse, Offsets bag_offsets,
                         Vector<const uint8_t> mean_slots, Cube<float> out) {
    const Bags bags(inverse, bag_offsets, rows.shape(0));
    if (!bags.ends_are_right(out.shape(0) * out.shape(1))) return false;
    return with_dim(out.shape(2),
                    [&](auto dim) { return pool_forward_as<dim>(rows.data(), bags, mean_slots.data(), out); });
}

template <size_t kDim>
static bool pool_backward_as(const Cube<const float>& grad, const Bags& bags, const uint8_t* mean_slots, float* out) {
    const size_t num_samples = grad.shape(0), num_slots = grad.shape(1), dim = kDim != 0 ? kDim : grad.shape(2);
    const size_t ahead = samples_ahead(dim) * num_slots * dim;
    std::vector<float> mean(dim);
    for (size_t slot = 0; slot < num_slots; slot++) {
        const float* const grads = grad.data() + slot * dim;
        const bool is_mean = mean_slots[slot] != 0;
        const bool right = bags.each(slot * num_samples, num_samples, [&](size_t sample, size_t at, size_t size)
                                     __attribute__((always_inline)) {
            const float* from = grads + sample * num_slots * dim;
            prefetch_behind<0>(from, ahead, dim);
            if (is_mean && size > 1) {
                divide_floats(mean.data(), from, static_cast<float>(size), dim);
                from = mean.data();
            }
            for (const size_t end = at + size; at < end; at++) {
                bags.prefetch_row<1>(out, dim, at);
                if (!bags.row(at, [&](size_t row) { add_floats(out + row * dim, from, dim); })) return false;
            }
            return true;
        });
        if (!right) return false;
    }
    return true;
}

static bool pool_backward(Cube<const float> grad, Vector<const int32_t> inverse, Offsets bag_offsets,
                          Vector<const uint8_t> mean_slots, Matrix<float> out) {
    const Bags bags(inverse, bag_offsets, out.shape(0));
    if (!bags.ends_are_right(grad.shape(0) * grad.shape(1))) return false;
    std::fill_n(out.data(), out.size(), 0.0f);
    return with_dim(grad.shape(2),
                    [&](auto dim) { return pool_backward_as<dim>(grad, bags, mean_slots.data(), out.data()); });
}

static bool count_shows(Vector<const int32_t> inverse, Offsets bag_offsets, Vector<const float> labels,
                        Vector<float> shows, Vector<float> clicks) {
    const size_t num_samples = labels.shape(0), num_bags = bag_offsets ? bag_offsets->shape(0) - 1 : inverse.shape(0);
    const Bags bags(inverse, bag_offsets, shows.shape(0));
    if (!bags.ends_are_right(num_bags)) return false;
    std::fill_n(shows.data(), shows.size(), 0.0f);
    std::fill_n(clicks.data(), clicks.size(), 0.0f);
    for (size_t first = 0; first < num_bags; first += num_samples) {
        const bool right = bags.each(first, num_samples, [&](size_t sample, size_t at, size_t size) {
            const float label = labels.data()[sample];
            for (const size_t end = at + size; at < end; at++) {
                const auto count = [&](size_t row) {
                    shows.data()[row] += 1.0f;
                    clicks.data()[row] += label;
                };
                if (!bags.row(at, count)) return false;
            }
            return true;
        });
        if (!right) return false;
    }
    return true;
}

void bind_pool(nb::module_& module) {
    module.def("pool_forward", &pool_forward, array_argument("rows"), array_argument("inverse"),
               array_argument("bag_offsets").none(), array_argument("mean_slots"), array_argument("out"), WithoutGil());
    module.def("pool_backward", &pool_backward, array_argument("grad"), array_argument("inverse"),
               array_argument("bag_offsets").none(), array_argument("mean_slots"), array_argument("out"), WithoutGil());
    module.def("count_shows", &count_shows, array_argument("inverse"), array_argument("bag_offsets").none(),
               array_argument("labels"), array_argument("shows"), array_argument("clicks"), WithoutGil());
}

}  // namespace geartrain
