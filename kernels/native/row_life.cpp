// How rows of a table come and go: admission, room for new ones, expiry; and the table as a cut shows it.
#include "row_life.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "floats.h"
#include "row_store.h"

namespace geartrain {

std::vector<RowStore::Newborn> RowStore::admit(const MergedGradients& merged, const std::vector<size_t>& missing,
                                               uint32_t version) {
    std::vector<Newborn> candidates;
    candidates.reserve(missing.size());
    for (const size_t number : missing) {
        const uint64_t key = merged.keys()[number];
        candidates.push_back({key, ShardIndex::hash(key), number});
    }
    if (life_.admission == Admission::kAlways) return candidates;
    std::vector<Newborn> newborns;
    if (life_.admission == Admission::kProbability) {
        std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(newborns),
                     [&](const Newborn& one) { return life_.draws(one.key, version); });
        return newborns;
    }
    // All are counted before any is judged, so that their order does not matter.
    count_shows(merged, candidates);
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(newborns), [&](const Newborn& one) {
        return sketch_.count(shard_of(one.hash), one.hash) >= life_.min_shows;
    });
    halve_sketches(candidates);
    return newborns;
}

void RowStore::count_shows(const MergedGradients& merged, const std::vector<Newborn>& candidates) {
    std::vector<float> room(dim_);
    for (const Newborn& one : candidates) {
        const unsigned shard = shard_of(one.hash);
        if (cut_ != nullptr) cut_->keep_sketch(shard, sketch_);
        sketch_.add(shard, one.hash, merged.sum(one.number, room.data()).shows);
    }
}

void RowStore::halve_sketches(const std::vector<Newborn>& candidates) {
    for (const Newborn& one : candidates) {
        if (sketch_.is_due(shard_of(one.hash))) sketch_.halve(shard_of(one.hash));
    }
}

size_t RowStore::make_room(std::vector<Newborn>& newborns, uint32_t version) {
    if (life_.max_rows == 0) return 0;
    std::vector<uint32_t> num_new(kNumShards);
    for (const Newborn& one : newborns) num_new[shard_of(one.hash)]++;
    drop_surplus(newborns, num_new);
    size_t num_evicted = 0;
    for (unsigned shard = 0; shard < kNumShards; shard++) {
        const uint64_t limit = life_.limit(shard), held = index_.num_keys(shard);
        const uint64_t wanted = held + std::min<uint64_t>(num_new[shard], limit);
        if (wanted <= limit) continue;
        const uint64_t leaving = std::min(held, std::max(wanted - limit, limit / 16));
        evict(shard, leaving, version);
        num_evicted += leaving;
    }
    return num_evicted;
}

// Where more rows would be born than the shard may hold, those of the lowest rank are.
void RowStore::drop_surplus(std::vector<Newborn>& newborns, const std::vector<uint32_t>& num_new) const {
    std::vector<std::vector<uint64_t>> ranks(kNumShards);
    bool any = false;
    for (const Newborn& one : newborns) {
        const unsigned shard = shard_of(one.hash);
        if (num_new[shard] <= life_.limit(shard)) continue;
        ranks[shard].push_back(life_.rank(one.key));
        any = true;
    }
    if (!any) return;
    for (auto& of_shard : ranks) std::sort(of_shard.begin(), of_shard.end());
    newborns.erase(std::remove_if(newborns.begin(), newborns.end(),
                                  [&](const Newborn& one) {
                                      const unsigned shard = shard_of(one.hash);
                                      const uint64_t limit = life_.limit(shard);
                                      return num_new[shard] > limit &&
                                             (limit == 0 || life_.rank(one.key) > ranks[shard][limit - 1]);
                                  }),
                   newborns.end());
}

void RowStore::evict(unsigned shard, size_t num_rows, uint32_t version) {
    struct Candidate {
        std::tuple<bool, float, uint32_t, uint64_t> order;
        uint64_t key;
        uint32_t row;
    };
    std::vector<Candidate> candidates;
    candidates.reserve(index_.num_keys(shard));
    index_.visit(shard, [&](uint64_t key, uint32_t row) {
        __builtin_prefetch(statistics(row));
        candidates.push_back({{}, key, row});
    });
    const bool by_shows = life_.eviction == Eviction::kLfu;
    for (Candidate& one : candidates) {
        const Statistics& of = *statistics(one.row);
        one.order = {by_shows && of.last_version == version, by_shows ? of.shows : 0.0f, of.last_version,
                     life_.rank(one.key)};
    }
    const auto before = [](const Candidate& a, const Candidate& b) { return a.order < b.order; };
    const auto end = candidates.begin() + static_cast<ptrdiff_t>(num_rows);
    if (end != candidates.end()) std::nth_element(candidates.begin(), end, candidates.end(), before);
    for (auto one = candidates.begin(); one != end; one++) remove(shard, one->key, one->row);
}

void RowStore::remove(unsigned shard, uint64_t key, uint32_t row) {
    if (cut_ != nullptr && cut_->needs(shard, statistics(row)->last_version)) {
        KeptRows copies;
        cut_->copy_row(shard, key, row, copies);
        cut_->keep(copies);
    }
    hottest_.remove(key);
    deletions_.add(shard, key, num_rows_);
    index_.erase(key, ShardIndex::hash(key));
    arena_.give_back(row);
    num_rows_--;
}

size_t RowStore::expire(unsigned first, unsigned last, uint32_t unseen_before) {
    const bool by_score = life_.expiry == Expiry::kScore;
    if (life_.expiry == Expiry::kNever) return 0;
    std::vector<std::pair<uint64_t, uint32_t>> rows;
    size_t num_removed = 0;
    for (unsigned shard = first; shard < last; shard++) {
        if (by_score && cut_ != nullptr) cut_->keep_shard(shard, index_);
        if (by_score) deletions_.set_decayed(shard);
        rows.clear();
        index_.visit(shard, [&](uint64_t key, uint32_t row) {
            __builtin_prefetch(statistics(row), 1);
            rows.emplace_back(key, row);
        });
        for (const auto& [key, row] : rows) {
            Statistics& of = *statistics(row);
            bool leaves = of.last_version < unseen_before;
            if (by_score) {
                const bool is_hot = of.shows >= hottest_.floor();
                of.shows *= life_.decay;
                of.clicks *= life_.decay;
                if (is_hot) hottest_.lower(key, of.shows);
                leaves = life_.show_weight * of.shows + life_.click_weight * of.clicks < life_.min_score;
            }
            if (!leaves) continue;
            remove(shard, key, row);
            num_removed++;
        }
    }
    return num_removed;
}

void RowStore::begin_cut(uint32_t version, std::optional<uint32_t> base) {
    cut_ = std::make_unique<Cut>(version, base, deletions_, arena_);
    if (!base) deletions_.restart(version);
}

void RowStore::collect_cut(unsigned first, unsigned last, int64_t* counts, int64_t* deleted_counts) {
    std::vector<CutRow> rows;
    std::vector<uint64_t> deleted;
    cut_->pass(first);
    cut_rows_.clear();
    cut_deleted_.clear();
    for (unsigned shard = first; shard < last; shard++) {
        cut_->collect(shard, index_, rows, deleted);
        counts[shard - first] = static_cast<int64_t>(rows.size());
        deleted_counts[shard - first] = static_cast<int64_t>(deleted.size());
        cut_rows_.insert(cut_rows_.end(), rows.begin(), rows.end());
        cut_deleted_.insert(cut_deleted_.end(), deleted.begin(), deleted.end());
    }
}

void RowStore::write_cut(unsigned first, unsigned last, const RecordBuffers& records, uint64_t* deleted,
                         uint8_t* sketches, uint64_t* sketch_totals) {
    constexpr size_t kAhead = 16;
    const size_t value_bytes = arena_.value_bytes(), state_bytes = state_width_ * sizeof(float);
    for (size_t i = 0; i < cut_rows_.size(); i++) {
        if (i + kAhead < cut_rows_.size()) {
            prefetch_bytes<0>(cut_rows_[i + kAhead].values, value_bytes);
            prefetch_bytes<0>(cut_rows_[i + kAhead].state, arena_.extra_bytes());
        }
        const CutRow& row = cut_rows_[i];
        Statistics of;
        std::memcpy(&of, row.state + state_bytes, sizeof of);
        records.keys[i] = row.key;
        std::memcpy(records.values + i * value_bytes, row.values, value_bytes);
        std::memcpy(records.states + i * state_width_, row.state, state_bytes);
        records.statistics[2 * i] = of.shows;
        records.statistics[2 * i + 1] = of.clicks;
        records.last_versions[i] = of.last_version;
    }
    std::copy(cut_deleted_.begin(), cut_deleted_.end(), deleted);
    for (unsigned shard = first; shard < last; shard++) {
        const size_t bytes = sketch_bytes();
        sketch_totals[shard - first] =
            bytes == 0 ? 0 : cut_->write_sketch(shard, sketch_, sketches + (shard - first) * bytes);
    }
    cut_->pass(last);
    cut_rows_.clear();
    cut_deleted_.clear();
}

}  // namespace geartrain
