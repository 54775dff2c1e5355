// The rules of a table's life; what they mean is said in row_life.py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hashing.h"

namespace geartrain {

enum class Admission { kAlways, kProbability, kCount };
enum class Expiry { kNever, kUnseen, kScore };
enum class Eviction { kLru, kLfu };

struct RowLife {
    uint64_t seed;
    Admission admission;
    double probability;
    unsigned min_shows;
    size_t sketch_bytes;
    Expiry expiry;
    float decay, show_weight, click_weight, min_score;
    uint64_t max_rows;  // over all shards; 0 is no limit
    Eviction eviction;

    // The most rows that a shard may hold.
    uint64_t limit(unsigned shard) const {
        if (max_rows == 0) return UINT64_MAX;
        return max_rows / 1024 + (shard < max_rows % 1024);
    }

    // Breaks ties between keys, in an order that nothing but the key and the table decides.
    uint64_t rank(uint64_t key) const { return mix64(key ^ seed); }

    // Whether a key without a row is drawn in the window of `version`.
    bool draws(uint64_t key, uint32_t version) const {
        const uint64_t bits = mix64(mix64(key ^ seed) ^ version * kGolden) >> 11;
        return static_cast<double>(bits) * 0x1p-53 < probability;
    }
};

}  // namespace geartrain
