#include "row_store.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "floats.h"
#include "row_updates.h"
#include "team.h"

namespace geartrain {

// Rows are found for a chunk of keys, then visited: two tight loops beat one that does both.
constexpr size_t kChunk = ShardIndex::kMostAtOnce;
// Rows between a prefetch and its use.
constexpr size_t kPullAhead = 96;
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
    update_part_ = &RowStore::update_part<Kind, Format, kDim>;
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
            if (i + kPullAhead < size && found[i + kPullAhead] != kNoRow) {
                rows.template prefetch_values<0>(found[i + kPullAhead]);
            }
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
    std::vector<Part> parts((num_keys + kChunk - 1) / kChunk);  // also for one thread: their number changes nothing
    Team::of_process().run(num_threads, parts.size(), [&](size_t number) {
        try {
            (this->*update_part_)(merged, number * kChunk, std::min(num_keys - number * kChunk, kChunk), coefficients,
                                  version, parts[number]);
        } catch (...) {
            parts[number].failure = std::current_exception();
        }
    });
    for (const Part& part : parts) {
        if (part.failure) std::rethrow_exception(part.failure);
    }

    std::vector<size_t> missing;
    for (Part& part : parts) {
        missing.insert(missing.end(), part.missing.begin(), part.missing.end());
        if (cut_ != nullptr) cut_->keep(part.kept);
        for (const HottestRows::Row& row : part.hottest.rows()) hottest_.offer(row.key, row.shows);
    }
    std::vector<Newborn> newborns = admit(merged, missing, version);
    const size_t num_evicted = make_room(newborns, version);
    const uint64_t growth_ns = index_.growth_ns();
    (this->*bear_)(merged, newborns, coefficients, version);
    longest_growth_ns_ = std::max(longest_growth_ns_, index_.growth_ns() - growth_ns);
    return {newborns.size(), missing.size() - newborns.size(), num_evicted};
}

// Updates those of `size` keys whose rows were found, `part` takes the others: numbers from `begin` on. `found` goes on
// with kNoRow for kUpdateAhead places. `prefetch_sum` and `sum` ask for and give the merged gradients of the i-th key.
// A function of its own, so that all that its loop needs has a register.
template <bool kWhole, typename Updates, typename Part, typename PrefetchSum, typename Sum>
[[gnu::noinline]] static void update_found(const uint64_t* keys, const uint32_t* found, size_t begin, size_t size,
                                           Updates updates, Part& part, PrefetchSum prefetch_sum, Sum sum) {
    const auto ask = [&](size_t i) __attribute__((always_inline)) {
        if (found[i] == kNoRow) return;
        updates.prefetch(found[i]);
        prefetch_sum(i);
    };
    for (size_t i = 0; i < kUpdateAhead; i++) ask(i);
    for (size_t i = 0; i < size; i++) {
        ask(i + kUpdateAhead);
        if (__builtin_expect(found[i] == kNoRow, 0)) {
            part.missing.push_back(begin + i);
        } else {
            updates.template update<kWhole>(found[i], keys[i], sum(i), part.hottest);
        }
    }
}

template <typename Kind, typename Format, size_t kDim>
void RowStore::update_part(const MergedGradients& merged, size_t begin, size_t size, const Coefficients& coefficients,
                           uint32_t version, Part& part) {
    using Updates = RowUpdates<Kind, Format, kDim>;
    const size_t dim = kDim != 0 ? kDim : dim_;
    std::vector<float> room(Updates::kRoomRows * dim);
    const Updates updates(arena_, dim, coefficients, life_.seed, version, room.data());
    part.hottest = HottestRows(hottest_.floor());
    const uint64_t* keys = merged.keys() + begin;
    uint32_t found[kChunk + kUpdateAhead];
    index_.find_many(keys, size, found);
    std::fill_n(found + size, kUpdateAhead, kNoRow);
    if (cut_ != nullptr) keep_for_cut(merged, begin, size, found, part.kept);
    const auto update_all = [&](auto prefetch_sum, auto sum) {
        if (coefficients.most_windows > 1.0f) {
            update_found<false>(keys, found, begin, size, updates, part, prefetch_sum, sum);
        } else {
            update_found<true>(keys, found, begin, size, updates, part, prefetch_sum, sum);
        }
    };
    if (const Contribution* direct = merged.direct()) {
        const float *grads = direct->grads + begin * dim, *shows = direct->shows + begin,
                    *clicks = direct->clicks + begin;
        update_all(
            [=](size_t i) __attribute__((always_inline)) { __builtin_prefetch(grads + i * dim, 0, 0); },
            [=](size_t i) { return MergedGradients::Sum{grads + i * dim, shows[i], clicks[i]}; });
    } else {
        update_all(
            [&](size_t i) __attribute__((always_inline)) { merged.prefetch(begin + i); },
            [&](size_t i) { return merged.sum(begin + i, room.data()); });
    }
}

// Copies the rows that the cut under way must show as they are now.
void RowStore::keep_for_cut(const MergedGradients& merged, size_t begin, size_t size, const uint32_t* rows,
                            KeptRows& kept) const {
    for (size_t i = 0; i < size; i++) {
        if (i + kUpdateAhead < size && rows[i + kUpdateAhead] != kNoRow) {
            __builtin_prefetch(statistics(rows[i + kUpdateAhead]));
        }
        if (rows[i] == kNoRow) continue;
        const uint64_t key = merged.keys()[begin + i];
        const unsigned shard = shard_of(ShardIndex::hash(key));
        if (cut_->needs(shard, statistics(rows[i])->last_version)) cut_->copy_row(shard, key, rows[i], kept);
    }
}

template <typename Kind, typename Format, size_t kDim>
void RowStore::bear(const MergedGradients& merged, const std::vector<Newborn>& newborns,
                    const Coefficients& coefficients, uint32_t version) {
    constexpr size_t kAhead = 24;
    using Updates = RowUpdates<Kind, Format, kDim>;
    std::vector<float> room(Updates::kRoomRows * dim_);
    const Updates updates(arena_, dim_, coefficients, life_.seed, version, room.data());
    for (size_t i = 0; i < newborns.size(); i++) {
        if (i + kAhead < newborns.size()) {
            index_.prefetch(newborns[i + kAhead].hash);
            merged.prefetch(newborns[i + kAhead].number);
        }
        const Newborn& newborn = newborns[i];
        const MergedGradients::Sum sum = merged.sum(newborn.number, room.data());
        // Nothing is lost if a caller gives a key twice in one contribution: its row is updated twice.
        if (const uint32_t known = index_.find(newborn.key, newborn.hash); known != kNoRow) {
            updates.template update<false>(known, newborn.key, sum, hottest_);
            continue;
        }
        const uint32_t row = arena_.take();
        index_.insert(newborn.key, newborn.hash, row);
        num_rows_++;
        updates.bear(row, newborn.key, initializer_, sum, hottest_);
    }
}

void RowStore::prepare_growth(size_t num_rows) {
    index_.release_left();
    const size_t per_shard = num_rows / kNumShards + num_rows / kNumShards / 4 + 8;  // shards fill unevenly
    size_t room = 0;
    for (unsigned shard = 0; shard < kNumShards; shard++) {
        const uint64_t held = index_.num_keys(shard), limit = life_.limit(shard);
        const size_t births = limit > held ? std::min<uint64_t>(per_shard, limit - held) : 0;
        index_.prepare_growth(shard, births);
        room += births;
    }
    arena_.prepare_growth(std::min(num_rows, room));
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
    index_.release_left();
}

}  // namespace geartrain
