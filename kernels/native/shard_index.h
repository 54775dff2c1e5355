// A map from 64-bit keys to row numbers, in 1,024 shards that grow one by one.
//
// A bucket is one cache line: five keys, their row numbers, and how many keys were displaced past it. A shard is a
// power of two of buckets; a key belongs into the bucket that the bits of its hash behind the shard's say, or where
// that is full into the next one with room. Every key is legal: a slot is empty by its row number, stored plus one.
//
// A shard that has many keys for its buckets moves into an array twice as large, alone: one pause of some hundred
// microseconds per ten thousand keys of it. The load at which shards do so differs, so that they take turns. All
// shards' arrays of one level lie side by side in one range of addresses, whose place follows from the level alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "hashing.h"
#include "region.h"

namespace geartrain {

constexpr unsigned kNumShards = 1024;
constexpr uint32_t kNoRow = UINT32_MAX;

inline unsigned shard_of(uint64_t hash) { return static_cast<unsigned>(hash >> kShardShift); }

class ShardIndex {
public:
    ShardIndex();

    static uint64_t hash(uint64_t key) { return mix64(key); }

    static constexpr size_t kMostAtOnce = 2048;

    // The rows of keys[0, size), kNoRow where there is none; `size` is at most kMostAtOnce.
    void find_many(const uint64_t* keys, size_t size, uint32_t* rows) const;

    // The row of `key`, or kNoRow.
    uint32_t find(uint64_t key, uint64_t hash) const;

    [[gnu::always_inline]] void prefetch(uint64_t hash) const { __builtin_prefetch(buckets() + place(hash), 1); }

    // Adds a key that is not there yet.
    void insert(uint64_t key, uint64_t hash, uint32_t row);

    // Takes a key out that is there; its row number is free then.
    void erase(uint64_t key, uint64_t hash);

    // Calls visit(key, row) for every key of a shard, in no order that means anything.
    template <typename Visit>
    void visit(unsigned shard, Visit visit) const {
        const Bucket* bucket = buckets() + first_bucket(shard);
        for (size_t i = 0; i < size_t{1} << levels_[shard]; i++, bucket++) {
            for (unsigned slot = 0; slot < kSlots && bucket->rows[slot] != 0; slot++) {
                visit(bucket->keys[slot], bucket->rows[slot] - 1);
            }
        }
    }

    uint32_t num_keys(unsigned shard) const { return counts_[shard]; }

    // Has the memory at hand that a shard will grow into while `num_keys` more are inserted. Lookups may go on.
    void prepare_growth(unsigned shard, size_t num_keys);

    // Gives the memory back that shards left when they grew. Lookups may go on.
    void release_left();

    size_t memory_bytes() const { return num_buckets_ * sizeof(Bucket); }
    uint64_t growth_ns() const { return growth_ns_; }

private:
    static constexpr unsigned kSlots = 5;
    static constexpr unsigned kMaxLevel = 21;  // bucket numbers fit 32 bits

    struct alignas(64) Bucket {
        uint64_t keys[kSlots];
        uint32_t rows[kSlots + 1];  // row + 1, 0 is empty; the last one counts the keys displaced past this bucket
    };
    static_assert(sizeof(Bucket) == 64, "a bucket is one cache line");

    // The first slot that has `key`, or kSlots. Slots fill from the front, so what is left of an old key in an empty
    // slot can only match behind all the used ones, and is told by its row, 0.
    static unsigned first_match(const Bucket& bucket, uint64_t key) {
        unsigned matches = 1u << kSlots;
#ifdef __AVX2__
        const __m256i four = _mm256_load_si256(reinterpret_cast<const __m256i*>(bucket.keys));
        const __m256i equal = _mm256_cmpeq_epi64(four, _mm256_set1_epi64x(static_cast<int64_t>(key)));
        matches |= static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(equal)));
        matches |= static_cast<unsigned>(bucket.keys[4] == key) << 4;
#else
        for (unsigned slot = 0; slot < kSlots; slot++) {
            matches |= static_cast<unsigned>(bucket.keys[slot] == key) << slot;
        }
#endif
        return static_cast<unsigned>(__builtin_ctz(matches));
    }

    // Level l has room for 1,024 << l buckets, and they begin at bucket 1,024 << l.
    static uint32_t place_at(uint64_t hash, unsigned level) {
        return static_cast<uint32_t>((hash >> (kShardShift - level)) + (uint64_t{kNumShards} << level));
    }
    static uint32_t first_at(unsigned shard, unsigned level) { return (kNumShards + shard) << level; }
    uint32_t place(uint64_t hash) const { return place_at(hash, levels_[shard_of(hash)]); }
    uint32_t first_bucket(unsigned shard) const { return first_at(shard, levels_[shard]); }

    // The bucket after `bucket` in a shard of this level, where the first one comes after the last.
    static uint32_t next(uint32_t bucket, unsigned level) {
        const uint32_t mask = (1u << level) - 1;
        return (bucket & ~mask) | ((bucket + 1) & mask);
    }

    Bucket* buckets() const { return reinterpret_cast<Bucket*>(region_.data()); }

    uint32_t find_displaced(uint64_t key, uint32_t bucket, unsigned level) const;
    void append(uint32_t bucket, unsigned level, uint64_t key, uint32_t stored_row);
    void grow(unsigned shard);
    void open_level(unsigned level);
    void release_left(unsigned shard, unsigned level);

    Region region_;
    uint8_t levels_[kNumShards] = {};
    uint8_t prepared_[kNumShards] = {};  // the level whose memory is at hand
    std::vector<bool> prepared_pages_[kMaxLevel + 1];  // huge pages of each level whose memory is at hand
    uint32_t counts_[kNumShards] = {};
    uint32_t limits_[kNumShards];  // keys at which the shard grows
    unsigned num_levels_ = 0;      // those opened so far
    size_t num_buckets_ = kNumShards;
    uint64_t growth_ns_ = 0;
    struct Left {
        unsigned shard, level;
    };
    std::vector<Left> left_;  // arrays that shards have left, whose memory was not given back yet
};

}  // namespace geartrain
