#include "row_store.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <type_traits>

#include "floats.h"
#include "row_format.h"

namespace geartrain {

// Rows are found for a chunk of keys, then visited: two tight loops beat one that does both.
constexpr size_t kChunk = 2048;
// Rows between a prefetch and its use.
constexpr size_t kPullAhead = 96;
constexpr size_t kUpdateAhead = 80;

// Where the rows of a table lie, with what is known at compile time folded in.
template <typename Kind, typename Format, size_t kDim>
class Rows {
public:
    explicit Rows(const RowArena& arena)
        : base_(arena.base()),
          value_bytes_(kDim != 0 ? kValueBytes : arena.value_bytes()),
          extra_bytes_(kDim != 0 ? kExtraBytes : arena.extra_bytes()) {}

    typename Format::Stored* values(size_t row) const {
        return reinterpret_cast<typename Format::Stored*>(RowArena::values_at(base_, row, value_bytes_, extra_bytes_));
    }
    float* state(size_t row) const {
        return reinterpret_cast<float*>(RowArena::extra_at(base_, row, value_bytes_, extra_bytes_));
    }
    template <int kForWriting>
    [[gnu::always_inline]] void prefetch_values(size_t row) const {
        if constexpr (fits_cache_lines(kValueBytes)) {
            prefetch_record<kForWriting, kValueBytes>(values(row));
        } else {
            prefetch_bytes<kForWriting>(values(row), value_bytes_);
        }
    }
    [[gnu::always_inline]] void prefetch_all(size_t row) const {
        prefetch_values<1>(row);
        if constexpr (fits_cache_lines(kExtraBytes)) {
            prefetch_record<1, kExtraBytes>(state(row));
        } else {
            prefetch_bytes<1>(state(row), extra_bytes_);
        }
    }

private:
    // 0 where the dim is known only at run time.
    static constexpr size_t kValueBytes = kDim * sizeof(typename Format::Stored);
    static constexpr size_t kExtraBytes =
        kDim != 0 ? Kind::state_width(kDim) * sizeof(float) + sizeof(Statistics) : 0;

    char* base_;
    size_t value_bytes_, extra_bytes_;
};

// Updates of single rows, with the room that they need.
template <typename Kind, typename Format, size_t kDim>
class RowUpdate {
public:
    RowUpdate(size_t dim, const Coefficients& coefficients, uint64_t seed, uint32_t version)
        : dim_(kDim != 0 ? kDim : dim),
          coefficients_(coefficients),
          bounded_(coefficients.min_weight > -HUGE_VALF || coefficients.max_weight < HUGE_VALF),
          seed_(seed),
          version_(version),
          room_(3 * dim_) {}

    float* sum_room() { return room_.data(); }

    // Updates a row that has been born.
    void update(uint64_t key, typename Format::Stored* values, float* state, const float* grads) {
        if constexpr (std::is_same_v<Format, Fp32>) {
            in_floats(values, state, grads);
        } else {
            float* wide = room_.data() + 2 * dim_;
            Format::widen(values, wide, dim_);
            in_floats(wide, state, grads);
            round_row<Format>(wide, values, dim_, RoundingBits(key, seed_, version_));
        }
    }

    // Updates a row from its initial values, which are not rounded.
    void bear(uint64_t key, const Initializer& initializer, typename Format::Stored* values, float* state,
              const float* grads) {
        std::memset(state, 0, Kind::state_width(dim_) * sizeof(float));
        if constexpr (std::is_same_v<Format, Fp32>) {
            initializer.fill(key, values, dim_);
            in_floats(values, state, grads);
        } else {
            float* wide = room_.data() + 2 * dim_;
            initializer.fill(key, wide, dim_);
            in_floats(wide, state, grads);
            round_row<Format>(wide, values, dim_, RoundingBits(key, seed_, version_));
        }
    }

private:
    void in_floats(float* values, float* state, const float* grads) {
        Kind::update(values, state, state + dim_, room_.data() + dim_, grads, dim_, coefficients_);
        if (bounded_) clamp(values, dim_, coefficients_.min_weight, coefficients_.max_weight);
    }

    const size_t dim_;
    const Coefficients coefficients_;
    const bool bounded_;
    const uint64_t seed_;
    const uint32_t version_;
    std::vector<float> room_;  // merged gradients, the optimizer's scratch, widened values
};

static size_t width_of(OptimizerKind kind, size_t dim) {
    switch (kind) {
        case OptimizerKind::kSgd: return Sgd::state_width(dim);
        case OptimizerKind::kAdagrad: return Adagrad::state_width(dim);
        case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad::state_width(dim);
        case OptimizerKind::kAdam: return Adam::state_width(dim);
        case OptimizerKind::kRowwiseAdam: return RowwiseAdam::state_width(dim);
        case OptimizerKind::kFtrl: return Ftrl::state_width(dim);
    }
    return 0;
}

RowStore::RowStore(size_t dim, OptimizerKind kind, RowDtype dtype, const Initializer& initializer, const RowLife& life)
    : dim_(dim),
      initializer_(initializer),
      life_(life),
      state_width_(width_of(kind, dim)),
      arena_(dim * (dtype == RowDtype::kFp32 ? 4 : 2), state_width_),
      sketch_(life.sketch_bytes, life.seed) {
    switch (kind) {
        case OptimizerKind::kSgd: choose<Sgd>(dtype); break;
        case OptimizerKind::kAdagrad: choose<Adagrad>(dtype); break;
        case OptimizerKind::kRowwiseAdagrad: choose<RowwiseAdagrad>(dtype); break;
        case OptimizerKind::kAdam: choose<Adam>(dtype); break;
        case OptimizerKind::kRowwiseAdam: choose<RowwiseAdam>(dtype); break;
        case OptimizerKind::kFtrl: choose<Ftrl>(dtype); break;
    }
}

// 16 values, and 17 with a first-order weight beside them, are what most models use.
template <typename Kind>
void RowStore::choose(RowDtype dtype) {
    if (dtype == RowDtype::kFp16) return use<Kind, Fp16, 0>();
    if (dtype == RowDtype::kBf16) return use<Kind, Bf16, 0>();
    if (dim_ == 16) return use<Kind, Fp32, 16>();
    if (dim_ == 17) return use<Kind, Fp32, 17>();
    return use<Kind, Fp32, 0>();
}

template <typename Kind, typename Format, size_t kDim>
void RowStore::use() {
    pull_ = &RowStore::pull_as<Kind, Format, kDim>;
    update_range_ = &RowStore::update_range<Kind, Format, kDim>;
    bear_ = &RowStore::bear<Kind, Format, kDim>;
}

void RowStore::pull(const uint64_t* keys, size_t num_keys, float* out) const { (this->*pull_)(keys, num_keys, out); }

template <typename Kind, typename Format, size_t kDim>
void RowStore::pull_as(const uint64_t* keys, size_t num_keys, float* out) const {
    const Rows<Kind, Format, kDim> rows(arena_);
    const size_t dim = kDim != 0 ? kDim : dim_;
    uint32_t found[kChunk];
    for (size_t at = 0; at < num_keys; at += kChunk) {
        const size_t size = std::min(kChunk, num_keys - at);
        index_.find_many(keys + at, size, found);
        for (size_t i = 0; i < std::min(size, kPullAhead); i++) {
            if (found[i] != kNoRow) rows.template prefetch_values<0>(found[i]);
        }
        for (size_t i = 0; i < size; i++) {
            if (i + kPullAhead < size && found[i + kPullAhead] != kNoRow) rows.template prefetch_values<0>(found[i + kPullAhead]);
            if (found[i] != kNoRow) {
                Format::widen(rows.values(found[i]), out + (at + i) * dim, dim);
            } else {
                initializer_.fill(keys[at + i], out + (at + i) * dim, dim);
            }
        }
    }
}

void RowStore::lookup(const uint64_t* keys, size_t num_keys, int64_t* rows) const {
    uint32_t found[kChunk];
    for (size_t at = 0; at < num_keys; at += kChunk) {
        const size_t size = std::min(kChunk, num_keys - at);
        index_.find_many(keys + at, size, found);
        for (size_t i = 0; i < size; i++) rows[at + i] = found[i] == kNoRow ? -1 : static_cast<int64_t>(found[i]);
    }
}

LifeCounts RowStore::apply(const std::vector<Contribution>& contributions, const Coefficients& coefficients,
                           uint32_t version, unsigned num_threads) {
    thread_local MergeRoom room;
    const MergedGradients merged(contributions, dim_, room);
    const size_t num_keys = merged.num_keys();
    std::vector<Part> parts(std::max(1u, num_threads));
    const auto update_part = [&](size_t t) {
        (this->*update_range_)(merged, num_keys * t / parts.size(), num_keys * (t + 1) / parts.size(), coefficients,
                               version, parts[t]);
    };
    std::vector<std::thread> threads;
    for (size_t t = 1; t < parts.size(); t++) threads.emplace_back(update_part, t);
    update_part(0);
    for (std::thread& thread : threads) thread.join();

    std::vector<size_t> missing = std::move(parts[0].missing);
    for (size_t t = 0; t < parts.size(); t++) {
        if (t > 0) missing.insert(missing.end(), parts[t].missing.begin(), parts[t].missing.end());
        if (cut_ != nullptr) cut_->keep(parts[t].kept);
        for (const HottestRows::Row& row : parts[t].hottest.rows()) hottest_.offer(row.key, row.shows);
    }
    std::vector<Newborn> newborns = admit(merged, missing, version);
    const size_t num_evicted = make_room(newborns, version);
    const uint64_t growth_ns = index_.growth_ns();
    (this->*bear_)(merged, newborns, coefficients, version);
    longest_growth_ns_ = std::max(longest_growth_ns_, index_.growth_ns() - growth_ns);
    return {newborns.size(), missing.size() - newborns.size(), num_evicted};
}

template <typename Kind, typename Format, size_t kDim>
void RowStore::update_range(const MergedGradients& merged, size_t begin, size_t end, const Coefficients& coefficients,
                            uint32_t version, Part& part) {
    const Rows<Kind, Format, kDim> rows(arena_);
    const size_t dim = kDim != 0 ? kDim : dim_;
    const size_t state_width = Kind::state_width(dim);
    RowUpdate<Kind, Format, kDim> row_update(dim_, coefficients, life_.seed, version);
    part.hottest = hottest_;
    const Cut* const cut = cut_.get();
    uint32_t found[kChunk];
    for (size_t at = begin; at < end; at += kChunk) {
        const size_t size = std::min(kChunk, end - at);
        const uint64_t* keys = merged.keys() + at;
        index_.find_many(keys, size, found);
        const auto prefetch = [&](size_t i) __attribute__((always_inline)) {
            if (found[i] != kNoRow) rows.prefetch_all(found[i]);
            merged.prefetch(at + i);
        };
        for (size_t i = 0; i < std::min(size, kUpdateAhead); i++) prefetch(i);
        for (size_t i = 0; i < size; i++) {
            if (i + kUpdateAhead < size) prefetch(i + kUpdateAhead);
            const uint32_t row = found[i];
            if (row == kNoRow) {
                part.missing.push_back(at + i);
                continue;
            }
            float* state = rows.state(row);
            Statistics* statistics = reinterpret_cast<Statistics*>(state + state_width);
            if (cut != nullptr) {
                const unsigned shard = shard_of(ShardIndex::hash(keys[i]));
                if (cut->needs(shard, statistics->last_version)) cut->copy_row(shard, keys[i], row, part.kept);
            }
            const MergedGradients::Sum sum = merged.sum(at + i, row_update.sum_room());
            row_update.update(keys[i], rows.values(row), state, sum.grads);
            statistics->shows += sum.shows;
            statistics->clicks += sum.clicks;
            statistics->last_version = version;
            part.hottest.offer(keys[i], statistics->shows);
        }
    }
}

template <typename Kind, typename Format, size_t kDim>
void RowStore::bear(const MergedGradients& merged, const std::vector<Newborn>& newborns,
                    const Coefficients& coefficients, uint32_t version) {
    constexpr size_t kAhead = 24;
    const Rows<Kind, Format, kDim> rows(arena_);
    RowUpdate<Kind, Format, kDim> row_update(dim_, coefficients, life_.seed, version);
    for (size_t i = 0; i < newborns.size(); i++) {
        if (i + kAhead < newborns.size()) {
            index_.prefetch(newborns[i + kAhead].hash);
            merged.prefetch(newborns[i + kAhead].number);
        }
        const Newborn& newborn = newborns[i];
        const MergedGradients::Sum sum = merged.sum(newborn.number, row_update.sum_room());
        // Nothing is lost if a caller gives a key twice in one contribution: its row is updated twice.
        if (const uint32_t known = index_.find(newborn.key, newborn.hash); known != kNoRow) {
            row_update.update(newborn.key, rows.values(known), rows.state(known), sum.grads);
            statistics(known)->shows += sum.shows;
            statistics(known)->clicks += sum.clicks;
            continue;
        }
        const uint32_t row = arena_.take();
        index_.insert(newborn.key, newborn.hash, row);
        num_rows_++;
        row_update.bear(newborn.key, initializer_, rows.values(row), rows.state(row), sum.grads);
        *statistics(row) = {sum.shows, sum.clicks, version};
        hottest_.offer(newborn.key, sum.shows);
    }
}

void RowStore::prepare_growth(size_t num_rows) {
    arena_.prepare_growth(num_rows);
    index_.prepare_growth(num_rows);
}

bool RowStore::has_any(const uint64_t* keys, size_t num_keys) const {
    uint32_t found[kChunk];
    for (size_t at = 0; at < num_keys; at += kChunk) {
        const size_t size = std::min(kChunk, num_keys - at);
        index_.find_many(keys + at, size, found);
        if (std::any_of(found, found + size, [](uint32_t row) { return row != kNoRow; })) return true;
    }
    return false;
}

void RowStore::load(const Records& records) {
    constexpr size_t kAhead = 24;
    const size_t value_bytes = arena_.value_bytes();
    deletions_.forget();  // rows of any last version may come
    for (size_t i = 0; i < records.num_rows; i++) {
        if (i + kAhead < records.num_rows) index_.prefetch(ShardIndex::hash(records.keys[i + kAhead]));
        const uint32_t row = arena_.take();
        index_.insert(records.keys[i], ShardIndex::hash(records.keys[i]), row);
        num_rows_++;
        std::memcpy(arena_.values(row), records.values + i * value_bytes, value_bytes);
        copy_floats(arena_.state(row), records.states + i * state_width_, state_width_);
        *statistics(row) = {records.statistics[2 * i], records.statistics[2 * i + 1], records.last_versions[i]};
        hottest_.offer(records.keys[i], records.statistics[2 * i]);
    }
}

}  // namespace geartrain
