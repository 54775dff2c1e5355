// A table as it was at one version, while windows go on to be applied.
//
// Shards are read in ascending order. What a later window changes in a shard that was not read yet is kept as it was:
// a row when it is first updated or leaves, the counters of the shard's sketch when they first change.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "admission_sketch.h"
#include "row_arena.h"
#include "shard_index.h"

namespace geartrain {

// What a row's last version does not tell of the time since the last cut that held all rows: the keys whose rows left,
// and the shards whose statistics were decayed. Forgotten when it would be long: then the next cut must hold all rows.
class DeletionLog {
public:
    std::optional<uint32_t> base() const { return base_; }

    void restart(uint32_t version) {
        forget();
        base_ = version;
    }

    void forget() {
        base_.reset();
        size_ = 0;
        for (auto& keys : keys_) std::vector<uint64_t>().swap(keys);
        decayed_ = {};
    }

    void add(unsigned shard, uint64_t key, size_t num_rows) {
        if (!base_) return;
        if (size_ >= std::max<size_t>(num_rows, 1 << 16)) return forget();
        keys_[shard].push_back(key);
        size_++;
    }

    void set_decayed(unsigned shard) { decayed_[shard] = true; }

    const std::vector<uint64_t>& of(unsigned shard) const { return keys_[shard]; }
    const std::array<bool, kNumShards>& decayed() const { return decayed_; }
    size_t memory_bytes() const { return size_ * sizeof(uint64_t); }

private:
    std::optional<uint32_t> base_;
    size_t size_ = 0;
    std::vector<uint64_t> keys_[kNumShards];
    std::array<bool, kNumShards> decayed_ = {};
};

// Rows as they were, copied before they change.
struct KeptRows {
    struct Row {
        uint64_t key;
        unsigned shard;
    };
    std::vector<Row> rows;
    std::vector<char> bytes;  // of each row its values, then its state and statistics
};

// A row of a cut: its key, and where its values and its state (with the statistics behind it) lie.
struct CutRow {
    uint64_t key;
    const char* values;
    const char* state;
};

class Cut {
public:
    // With a `base`, a version, the cut is of the rows that changed and the keys that left since then.
    Cut(uint32_t version, std::optional<uint32_t> base, const DeletionLog& deletions, const RowArena& arena);

    unsigned next_shard() const { return next_shard_; }

    // Whether a row that was last updated at `last_version` must be kept before it changes.
    bool needs(unsigned shard, uint32_t last_version) const {
        return shard >= next_shard_ && last_version <= version_ && !kept_whole_[shard];
    }

    // Copies a row that is about to change or leave. Several threads may fill lists of their own.
    void copy_row(unsigned shard, uint64_t key, uint32_t row, KeptRows& to) const;

    void keep(const KeptRows& copies);

    // Keeps all of a shard, before a change that no row's last version tells.
    void keep_shard(unsigned shard, const ShardIndex& index);

    void keep_sketch(unsigned shard, const AdmissionSketch& sketch);

    // The rows of `shard` at the cut and, for a delta, the keys that left since the base; both by key. Only shards from
    // next_shard on can be asked for; what it points to is good until the table changes.
    void collect(unsigned shard, const ShardIndex& index, std::vector<CutRow>& rows,
                 std::vector<uint64_t>& deleted) const;

    // Writes the counters of the shard's sketch at the cut; returns their total.
    uint64_t write_sketch(unsigned shard, const AdmissionSketch& sketch, uint8_t* counters) const;

    // Shards before `shard` have been read: what was kept of them is forgotten.
    void pass(unsigned shard);

    // Of the rows that were kept. May be asked for while shards are passed.
    size_t memory_bytes() const { return kept_bytes_; }

private:
    struct KeptShard {
        std::vector<uint64_t> keys;
        std::vector<char> bytes;
    };
    struct KeptSketch {
        std::unique_ptr<uint8_t[]> counters;
        uint64_t total;
    };

    size_t row_bytes() const { return arena_.value_bytes() + arena_.extra_bytes(); }
    uint32_t last_version(const char* state) const;

    uint32_t version_;
    std::optional<uint32_t> base_;
    const RowArena& arena_;
    unsigned next_shard_ = 0;
    KeptShard kept_[kNumShards];
    std::atomic<size_t> kept_bytes_ = 0;
    bool kept_whole_[kNumShards] = {};
    std::vector<uint64_t> deleted_[kNumShards];
    std::array<bool, kNumShards> decayed_ = {};
    std::unordered_map<unsigned, KeptSketch> sketches_;
};

}  // namespace geartrain
