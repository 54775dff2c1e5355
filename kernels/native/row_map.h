// A map from 64-bit keys to row numbers that grows one bucket at a time (linear hashing, Litwin 1980).
//
// A bucket is one cache line: five keys, their row numbers and a link to an overflow bucket. Every key is legal, because
// a slot is empty by its row number, which is stored plus one. When the load rises, the next bucket in turn is split
// in two, so an insertion never waits for the whole index, and buckets stay in one region that never moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hashing.h"
#include "region.h"

namespace geartrain {

class RowMap {
public:
    static constexpr uint32_t kNone = UINT32_MAX;

    RowMap();

    static uint64_t hash(uint64_t key) { return mix64(key); }

    void prefetch(uint64_t hash) const { __builtin_prefetch(buckets() + place(hash)); }

    // The row of `key`, or kNone.
    uint32_t find(uint64_t key, uint64_t hash) const {
        const Bucket* bucket = buckets() + place(hash);
        for (;;) {
            const unsigned slot = first_match(*bucket, key);
            const uint32_t value = bucket->rows[slot];
            if (slot < kSlots || value == 0) return value - 1;
            bucket = overflow() + (value - 1);
        }
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
        for (unsigned slot = 0; slot < kSlots; slot++) matches |= static_cast<unsigned>(bucket.keys[slot] == key) << slot;
        return static_cast<unsigned>(__builtin_ctz(matches));
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
