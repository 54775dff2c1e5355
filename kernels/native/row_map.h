// A map from 64-bit keys to row numbers that grows one bucket at a time (linear hashing, Litwin 1980).
//
// A bucket is one cache line: five keys, their row numbers and a link to an overflow bucket. Every key is legal,
// because a slot is empty by its row number, which is stored plus one. When the load rises, the next bucket in turn is
// split in two, so an insertion never waits for the whole index, and buckets stay in one region that never moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "hashing.h"
#include "region.h"

namespace geartrain {

class RowMap {
public:
    static constexpr uint32_t kNone = UINT32_MAX;

    RowMap();

    static uint64_t hash(uint64_t key) { return mix64(key); }

    void prefetch(uint64_t hash) const { __builtin_prefetch(buckets() + place(hash)); }

    // What a key's first bucket says: its row (or kNone), or a link to the overflow bucket to look in (0 is none).
    struct Probe {
        uint32_t row;
        uint32_t link;
    };

    Probe probe(uint64_t key, uint64_t hash) const { return probe_bucket(buckets()[place(hash)], key); }

    void prefetch_link(uint32_t link) const { __builtin_prefetch(overflow() + (link - 1)); }

    // The row that the overflow buckets from `link` on have for `key`, or kNone.
    uint32_t follow(uint64_t key, uint32_t link) const {
        Probe probe{kNone, link};
        while (probe.link != 0) probe = probe_bucket(overflow()[probe.link - 1], key);
        return probe.row;
    }

    // The row of `key`, or kNone.
    uint32_t find(uint64_t key, uint64_t hash) const {
        const Probe first = probe(key, hash);
        return first.link == 0 ? first.row : follow(key, first.link);
    }

    // Adds a key that is not there yet.
    void insert(uint64_t key, uint64_t hash, uint32_t row);

    // Writes each key to keys[its row].
    void write_keys(uint64_t* keys) const;

    size_t memory_bytes() const { return (num_buckets_ + num_overflow_) * sizeof(Bucket); }

private:
    static constexpr unsigned kSlots = 5;

    struct alignas(64) Bucket {
        uint64_t keys[kSlots];
        uint32_t rows[kSlots + 1];  // row + 1, 0 is empty; the last one links to an overflow bucket in the same way
    };
    static_assert(sizeof(Bucket) == 64, "a bucket is one cache line");

    struct Entry {
        uint64_t key;
        uint32_t row;
    };

    // The first slot that has `key`, or kSlots. Slots fill from the front, so what is left of an old key in an empty
    // slot can only match after all the used ones.
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

    static Probe probe_bucket(const Bucket& bucket, uint64_t key) {
        const unsigned slot = first_match(bucket, key);
        const uint32_t value = bucket.rows[slot];
        if (slot == kSlots) return {kNone, value};
        return {value - 1, 0};
    }

    size_t place(uint64_t hash) const {
        const size_t wide = hash & (2 * level_size_ - 1);
        return wide < num_buckets_ ? wide : wide - level_size_;
    }

    Bucket* buckets() const { return reinterpret_cast<Bucket*>(buckets_.data()); }
    Bucket* overflow() const { return reinterpret_cast<Bucket*>(overflow_.data()); }

    void append(Bucket* bucket, Entry entry);
    void split_next();
    uint32_t take_overflow();

    Region buckets_;
    Region overflow_;
    size_t level_size_ = 1;   // a power of two: buckets at the start of this round of splits
    size_t num_buckets_ = 1;  // in [level_size, 2 * level_size)
    size_t num_keys_ = 0;
    size_t num_overflow_ = 0;
    uint32_t free_overflow_ = 0;  // overflow bucket + 1, linked through its own link; 0 is none
    std::vector<Entry> moving_;
};

}  // namespace geartrain
