#include "row_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "floats.h"

namespace geartrain {

// Keys in flight between the stages of a sweep: hash, look up, work. Enough to cover a miss with work on others.
constexpr size_t kAhead = 16;

constexpr size_t kStatistics = 3;  // shows, clicks, last version

// Runs ask(i), then find(i) at least kAhead items later, then work(i) again that much later, for i in [0, size).
template <typename Ask, typename Find, typename Work>
static void sweep(size_t size, Ask ask, Find find, Work work) {
    const size_t first = std::min(size, 2 * kAhead);
    const size_t second = std::min(size, kAhead);
    for (size_t i = 0; i < first; i++) ask(i);
    for (size_t i = 0; i < second; i++) find(i);
    size_t i = 0;
    for (; i + 2 * kAhead < size; i++) {
        ask(i + 2 * kAhead);
        find(i + kAhead);
        work(i);
    }
    for (; i + kAhead < size; i++) {
        find(i + kAhead);
        work(i);
    }
    for (; i < size; i++) work(i);
}

constexpr size_t kRing = 4 * kAhead;  // a power of two, for a cheap remainder

static size_t width_of(OptimizerKind kind, size_t dim) {
    switch (kind) {
        case OptimizerKind::kSgd: return 0;
        case OptimizerKind::kAdagrad: return dim;
        case OptimizerKind::kRowwiseAdagrad: return 1;
        case OptimizerKind::kAdam: return 2 * dim;
    }
    return 0;
}

RowStore::RowStore(size_t dim, OptimizerKind kind, const Initializer& initializer)
    : dim_(dim),
      kind_(kind),
      initializer_(initializer),
      state_width_(width_of(kind, dim)),
      stride_(dim + state_width_ + kStatistics),
      arena_((size_t{1} << 32) * stride_ * sizeof(float)),
      scratch_(dim) {}

void RowStore::pull(const uint64_t* keys, size_t num_keys, float* out) const {
    uint64_t hashes[kRing];
    uint32_t rows[kRing];
    sweep(
        num_keys,
        [&](size_t i) {
            hashes[i % kRing] = RowMap::hash(keys[i]);
            map_.prefetch(hashes[i % kRing]);
        },
        [&](size_t i) {
            const uint32_t row = map_.find(keys[i], hashes[i % kRing]);
            rows[i % kRing] = row;
            if (row != RowMap::kNone) prefetch_bytes<0>(row_at(row), dim_ * sizeof(float));
        },
        [&](size_t i) {
            const uint32_t row = rows[i % kRing];
            if (row != RowMap::kNone) {
                copy_floats(out + i * dim_, row_at(row), dim_);
            } else {
                initializer_.fill(keys[i], out + i * dim_, dim_);
            }
        });
}

size_t RowStore::apply(const Gradients& gradients, const Coefficients& coefficients, uint32_t version) {
    const size_t before = num_rows_;
    switch (kind_) {
        case OptimizerKind::kSgd: apply_as<Sgd>(gradients, coefficients, version); break;
        case OptimizerKind::kAdagrad: apply_as<Adagrad>(gradients, coefficients, version); break;
        case OptimizerKind::kRowwiseAdagrad: apply_as<RowwiseAdagrad>(gradients, coefficients, version); break;
        case OptimizerKind::kAdam: apply_as<Adam>(gradients, coefficients, version); break;
    }
    return num_rows_ - before;
}

template <typename Kind>
void RowStore::apply_as(const Gradients& gradients, const Coefficients& coefficients, uint32_t version) {
    uint64_t hashes[kRing];
    uint32_t rows[kRing];
    sweep(
        gradients.num_keys,
        [&](size_t i) {
            hashes[i % kRing] = RowMap::hash(gradients.keys[i]);
            map_.prefetch(hashes[i % kRing]);
        },
        [&](size_t i) {
            const uint32_t row = map_.find(gradients.keys[i], hashes[i % kRing]);
            rows[i % kRing] = row;
            if (row != RowMap::kNone) prefetch_bytes<1>(row_at(row), stride_ * sizeof(float));
        },
        [&](size_t i) {
            uint32_t row = rows[i % kRing];
            if (row == RowMap::kNone) row = find_or_add(gradients.keys[i]);
            float* values = row_at(row);
            float* first = values + dim_;
            float* second = std::is_same_v<Kind, RowwiseAdagrad> ? scratch_.data() : first + dim_;
            Kind::update(values, first, second, gradients.grads + i * dim_, dim_, coefficients);
            float* statistics = first + state_width_;
            statistics[0] += gradients.shows[i];
            statistics[1] += gradients.clicks[i];
            std::memcpy(statistics + 2, &version, sizeof version);
        });
}

uint32_t RowStore::find_or_add(uint64_t key) {
    const uint64_t hash = RowMap::hash(key);
    const uint32_t row = map_.find(key, hash);
    if (row != RowMap::kNone) return row;
    const uint32_t added = add_row(key, hash);
    initializer_.fill(key, row_at(added), dim_);
    return added;
}

uint32_t RowStore::add_row(uint64_t key, uint64_t hash) {
    if (num_rows_ >= RowMap::kNone - 1) throw std::length_error("a table has at most 2**32 - 2 rows on one server");
    arena_.ensure((num_rows_ + 1) * stride_ * sizeof(float));
    const uint32_t row = static_cast<uint32_t>(num_rows_);
    map_.insert(key, hash, row);
    num_rows_++;
    return row;
}

void RowStore::write_records(const RecordBuffers& records) const {
    map_.write_keys(records.keys);
    for (size_t i = 0; i < num_rows_; i++) {
        const float* row = row_at(i);
        const float* statistics = row + dim_ + state_width_;
        copy_floats(records.values + i * dim_, row, dim_);
        copy_floats(records.states + i * state_width_, row + dim_, state_width_);
        copy_floats(records.statistics + i * 2, statistics, 2);
        std::memcpy(records.last_versions + i, statistics + 2, sizeof(uint32_t));
    }
}

bool RowStore::has_any(const uint64_t* keys, size_t num_keys) const {
    for (size_t i = 0; i < num_keys; i++) {
        if (i + kAhead < num_keys) map_.prefetch(RowMap::hash(keys[i + kAhead]));
        if (map_.find(keys[i], RowMap::hash(keys[i])) != RowMap::kNone) return true;
    }
    return false;
}

void RowStore::load(const Records& records) {
    for (size_t i = 0; i < records.num_rows; i++) {
        if (i + kAhead < records.num_rows) map_.prefetch(RowMap::hash(records.keys[i + kAhead]));
        float* row = row_at(add_row(records.keys[i], RowMap::hash(records.keys[i])));
        float* statistics = row + dim_ + state_width_;
        copy_floats(row, records.values + i * dim_, dim_);
        copy_floats(row + dim_, records.states + i * state_width_, state_width_);
        copy_floats(statistics, records.statistics + i * 2, 2);
        std::memcpy(statistics + 2, records.last_versions + i, sizeof(uint32_t));
    }
}

}  // namespace geartrain
