// A table's rows: [values | optimizer state | shows | clicks | last version], found by key; rows never move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "initializer.h"
#include "optimizers.h"
#include "region.h"
#include "row_map.h"

namespace geartrain {

enum class OptimizerKind { kSgd, kAdagrad, kRowwiseAdagrad, kAdam };

class RowStore {
public:
    // Plain arrays of `num_rows` rows in order of birth; `state_width` floats of state each.
    template <typename Key, typename Float, typename Version>
    struct RecordArrays {
        size_t num_rows;
        Key* keys;
        Float* values;
        Float* states;
        Float* statistics;
        Version* last_versions;
    };
    using Records = RecordArrays<const uint64_t, const float, const uint32_t>;
    using RecordBuffers = RecordArrays<uint64_t, float, uint32_t>;

    // Contributions to `num_keys` rows, one after the other.
    struct Gradients {
        size_t num_keys;
        const uint64_t* keys;
        const float* grads;
        const float* shows;
        const float* clicks;
    };

    RowStore(size_t dim, OptimizerKind kind, const Initializer& initializer);

    size_t state_width() const { return state_width_; }
    size_t num_rows() const { return num_rows_; }
    size_t memory_bytes() const { return map_.memory_bytes() + num_rows_ * stride_ * sizeof(float); }

    void pull(const uint64_t* keys, size_t num_keys, float* out) const;

    // Returns how many rows were born.
    size_t apply(const Gradients& gradients, const Coefficients& coefficients, uint32_t version);

    void write_records(const RecordBuffers& records) const;

    // Whether any of the keys has a row.
    bool has_any(const uint64_t* keys, size_t num_keys) const;

    // Adds rows; none of the keys may have one.
    void load(const Records& records);

private:
    template <typename Kind>
    void apply_as(const Gradients& gradients, const Coefficients& coefficients, uint32_t version);

    float* row_at(size_t row) const { return reinterpret_cast<float*>(arena_.data()) + row * stride_; }
    uint32_t add_row(uint64_t key, uint64_t hash);
    uint32_t find_or_add(uint64_t key);

    size_t dim_;
    OptimizerKind kind_;
    Initializer initializer_;
    size_t state_width_;
    size_t stride_;  // floats from one row to the next
    size_t num_rows_ = 0;
    RowMap map_;
    Region arena_;
    std::vector<float> scratch_;
};

}  // namespace geartrain
