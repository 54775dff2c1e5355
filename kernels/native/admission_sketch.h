// Counts of keys that have no row yet: a count-min sketch per shard, see row_life.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "hashing.h"
#include "shard_index.h"

namespace geartrain {

class AdmissionSketch {
public:
    AdmissionSketch(size_t sketch_bytes, uint64_t seed)
        : width_(sketch_bytes / kNumShards / kRows), mixed_seed_(mix64(seed)) {}

    // Counters of a shard, one after the other.
    size_t shard_bytes() const { return kRows * width_; }

    void add(unsigned shard, uint64_t hash, float shows) {
        if (counters_[shard] == nullptr) {
            counters_[shard] = std::make_unique<uint8_t[]>(shard_bytes());
            num_shards_++;
        }
        const unsigned count = shows >= 255.0f ? 255 : shows > 0.0f ? static_cast<unsigned>(shows) : 0;
        totals_[shard] += count;
        const uint64_t bits = mix64(hash ^ mixed_seed_);
        for (unsigned row = 0; row < kRows; row++) {
            uint8_t& counter = at(shard, row, bits);
            counter = static_cast<uint8_t>(std::min(255u, counter + count));
        }
    }

    unsigned count(unsigned shard, uint64_t hash) const {
        const uint64_t bits = mix64(hash ^ mixed_seed_);
        unsigned least = 255;
        for (unsigned row = 0; row < kRows; row++) least = std::min<unsigned>(least, at(shard, row, bits));
        return least;
    }

    // Whether the shard has counted so much that its counters must be halved.
    bool is_due(unsigned shard) const { return totals_[shard] >= width_ / 4; }

    void halve(unsigned shard) {
        for (size_t i = 0; i < shard_bytes(); i++) counters_[shard][i] >>= 1;
        totals_[shard] = 0;
    }

    // Writes a shard's counters, zeros where it has none; returns its total.
    uint64_t write(unsigned shard, uint8_t* counters) const {
        if (counters_[shard] == nullptr) {
            std::memset(counters, 0, shard_bytes());
        } else {
            std::memcpy(counters, counters_[shard].get(), shard_bytes());
        }
        return totals_[shard];
    }

    void load(unsigned shard, const uint8_t* counters, uint64_t total) {
        totals_[shard] = total;
        if (counters_[shard] == nullptr) {
            if (std::all_of(counters, counters + shard_bytes(), [](uint8_t counter) { return counter == 0; })) return;
            counters_[shard] = std::make_unique<uint8_t[]>(shard_bytes());
            num_shards_++;
        }
        std::memcpy(counters_[shard].get(), counters, shard_bytes());
    }

    size_t memory_bytes() const { return num_shards_ * shard_bytes(); }

private:
    static constexpr unsigned kRows = 4;

    uint8_t& at(unsigned shard, unsigned row, uint64_t bits) const {
        return counters_[shard][row * width_ + (bits >> (16 * row) & (width_ - 1))];
    }

    size_t width_;  // a power of two
    uint64_t mixed_seed_;
    std::unique_ptr<uint8_t[]> counters_[kNumShards];  // from a shard's first use
    uint64_t totals_[kNumShards] = {};                 // shows counted since the last halving
    size_t num_shards_ = 0;
};

}  // namespace geartrain
