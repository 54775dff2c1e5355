#include "cut.h"

#include <algorithm>
#include <cstring>

namespace geartrain {

Cut::Cut(uint32_t version, std::optional<uint32_t> base, const DeletionLog& deletions, const RowArena& arena)
    : version_(version), base_(base), arena_(arena) {
    if (!base) return;
    for (unsigned shard = 0; shard < kNumShards; shard++) deleted_[shard] = deletions.of(shard);
    decayed_ = deletions.decayed();
}

void Cut::copy_row(unsigned shard, uint64_t key, uint32_t row, KeptRows& to) const {
    to.rows.push_back({key, shard});
    const char* values = arena_.values(row);
    const char* state = reinterpret_cast<const char*>(arena_.state(row));
    to.bytes.insert(to.bytes.end(), values, values + arena_.value_bytes());
    to.bytes.insert(to.bytes.end(), state, state + arena_.extra_bytes());
}

void Cut::keep(const KeptRows& copies) {
    const char* bytes = copies.bytes.data();
    for (const KeptRows::Row& row : copies.rows) {
        KeptShard& shard = kept_[row.shard];
        shard.keys.push_back(row.key);
        shard.bytes.insert(shard.bytes.end(), bytes, bytes + row_bytes());
        bytes += row_bytes();
    }
    kept_bytes_ += copies.rows.size() * (sizeof(uint64_t) + row_bytes());
}

void Cut::keep_shard(unsigned shard, const ShardIndex& index) {
    if (shard < next_shard_ || kept_whole_[shard]) return;
    KeptRows copies;
    index.visit(shard, [&](uint64_t key, uint32_t row) {
        if (last_version(reinterpret_cast<const char*>(arena_.state(row))) <= version_) {
            copy_row(shard, key, row, copies);
        }
    });
    keep(copies);
    kept_whole_[shard] = true;
}

void Cut::keep_sketch(unsigned shard, const AdmissionSketch& sketch) {
    if (shard < next_shard_ || sketches_.count(shard) != 0) return;
    KeptSketch kept{std::make_unique<uint8_t[]>(sketch.shard_bytes()), 0};
    kept.total = sketch.write(shard, kept.counters.get());
    sketches_.emplace(shard, std::move(kept));
}

void Cut::collect(unsigned shard, const ShardIndex& index, std::vector<CutRow>& rows,
                  std::vector<uint64_t>& deleted) const {
    rows.clear();
    deleted.clear();
    if (!kept_whole_[shard]) {
        index.visit(shard, [&](uint64_t key, uint32_t row) {
            const char* state = reinterpret_cast<const char*>(arena_.state(row));
            __builtin_prefetch(state + arena_.extra_bytes() - 1);
            rows.push_back({key, arena_.values(row), state});
        });
        rows.erase(std::remove_if(rows.begin(), rows.end(),
                                  [this](const CutRow& row) { return last_version(row.state) > version_; }),
                   rows.end());
    }
    const KeptShard& kept = kept_[shard];
    for (size_t i = 0; i < kept.keys.size(); i++) {
        const char* bytes = kept.bytes.data() + i * row_bytes();
        rows.push_back({kept.keys[i], bytes, bytes + arena_.value_bytes()});
    }
    std::sort(rows.begin(), rows.end(), [](const CutRow& a, const CutRow& b) { return a.key < b.key; });
    if (!base_) return;
    deleted = deleted_[shard];
    std::sort(deleted.begin(), deleted.end());
    deleted.erase(std::unique(deleted.begin(), deleted.end()), deleted.end());
    const auto is_there = [&](uint64_t key) {
        const auto found = std::lower_bound(rows.begin(), rows.end(), key,
                                            [](const CutRow& row, uint64_t wanted) { return row.key < wanted; });
        return found != rows.end() && found->key == key;
    };
    deleted.erase(std::remove_if(deleted.begin(), deleted.end(), is_there), deleted.end());
    if (decayed_[shard]) return;
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [this](const CutRow& row) { return last_version(row.state) <= *base_; }),
               rows.end());
}

uint64_t Cut::write_sketch(unsigned shard, const AdmissionSketch& sketch, uint8_t* counters) const {
    const auto kept = sketches_.find(shard);
    if (kept == sketches_.end()) return sketch.write(shard, counters);
    std::memcpy(counters, kept->second.counters.get(), sketch.shard_bytes());
    return kept->second.total;
}

void Cut::pass(unsigned shard) {
    for (; next_shard_ < shard; next_shard_++) {
        kept_bytes_ -= kept_[next_shard_].keys.size() * (sizeof(uint64_t) + row_bytes());
        kept_[next_shard_] = {};
        deleted_[next_shard_] = {};
        sketches_.erase(next_shard_);
    }
}

uint32_t Cut::last_version(const char* state) const {
    uint32_t version;
    std::memcpy(&version, state + arena_.extra_bytes() - sizeof version, sizeof version);
    return version;
}

}  // namespace geartrain
