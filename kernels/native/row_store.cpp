#include "row_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "floats.h"

namespace geartrain {

constexpr size_t kStatistics = 3;  // shows, clicks, last version

// Items between a prefetch and its use; memory answers many requests at once, so it pays to have many under way.
constexpr size_t kAhead = 48;

// A sweep over keys in stages, each far enough behind the one before that its cache lines have arrived.
class Sweep {
public:
    Sweep(const RowMap& map, const uint64_t* keys, size_t size) : map_(map), keys_(keys), size_(size) {}

    // Calls fetch(row) early for each row that exists, and work(i, row or kNone) for i in [0, size) in order.
    template <typename Fetch, typename Work>
    void run(Fetch fetch, Work work) {
        size_t i = 0;
        for (; i < std::min(size_, 2 * kAhead); i++) step<true>(i, fetch, work);
        for (; i < size_; i++) step<false>(i, fetch, work);
        for (; i < size_ + 2 * kAhead; i++) step<true>(i, fetch, work);
    }

private:
    static constexpr size_t kRing = 128;
    static_assert(kRing >= 2 * kAhead, "items in flight have places of their own");

    // One item for each stage. At the edges of the sweep some have none: theirs is at `size` or later, or below zero,
    // which wraps to a large number.
    template <bool kAtEdge, typename Fetch, typename Work>
    void step(size_t i, Fetch& fetch, Work& work) {
        if (!kAtEdge || i < size_) ask(i);
        if (!kAtEdge || i - kAhead < size_) probe(i - kAhead, fetch);
        if (!kAtEdge || i - kAhead - kAhead / 2 < size_) follow(i - kAhead - kAhead / 2, fetch);
        if (!kAtEdge || i - 2 * kAhead < size_) work(i - 2 * kAhead, probes_[(i - 2 * kAhead) % kRing].row);
    }

    void ask(size_t i) {
        hashes_[i % kRing] = RowMap::hash(keys_[i]);
        map_.prefetch(hashes_[i % kRing]);
    }

    template <typename Fetch>
    void probe(size_t i, Fetch& fetch) {
        const RowMap::Probe probe = map_.probe(keys_[i], hashes_[i % kRing]);
        probes_[i % kRing] = probe;
        if (probe.row != RowMap::kNone) fetch(probe.row);
        if (probe.link != 0) map_.prefetch_link(probe.link);
    }

    template <typename Fetch>
    void follow(size_t i, Fetch& fetch) {
        RowMap::Probe& probe = probes_[i % kRing];
        if (probe.link == 0) return;
        probe.row = map_.follow(keys_[i], probe.link);
        if (probe.row != RowMap::kNone) fetch(probe.row);
    }

    const RowMap& map_;
    const uint64_t* keys_;
    size_t size_;
    uint64_t hashes_[kRing];
    RowMap::Probe probes_[kRing];
};

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
    Sweep(map_, keys, num_keys)
        .run([&](uint32_t row) { prefetch_bytes<0>(row_at(row), dim_ * sizeof(float)); },
             [&](size_t i, uint32_t row) {
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
    Sweep(map_, gradients.keys, gradients.num_keys)
        .run([&](uint32_t row) { prefetch_bytes<1>(row_at(row), stride_ * sizeof(float)); },
             [&](size_t i, uint32_t row) {
                 // A row that was born or moved in the index since the look-up is found again here.
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
