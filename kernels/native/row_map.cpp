#include "row_map.h"

namespace geartrain {

// 2.75 keys a bucket on average: 23 bytes of index per key, and about one key in thirty in an overflow bucket.
constexpr size_t kLoadNumerator = 11;
constexpr size_t kLoadDenominator = 4;

RowMap::RowMap() : buckets_(SIZE_MAX), overflow_(SIZE_MAX) { buckets_.ensure(sizeof(Bucket)); }

void RowMap::insert(uint64_t key, uint64_t hash, uint32_t row) {
    if ((num_keys_ + 1) * kLoadDenominator > num_buckets_ * kLoadNumerator) split_next();
    append(buckets() + place(hash), {key, row + 1});
    num_keys_++;
}

void RowMap::append(Bucket* bucket, Entry entry) {
    for (;;) {
        for (unsigned slot = 0; slot < kSlots; slot++) {
            if (bucket->rows[slot] != 0) continue;
            bucket->keys[slot] = entry.key;
            bucket->rows[slot] = entry.row;
            return;
        }
        uint32_t& link = bucket->rows[kSlots];
        if (link == 0) link = take_overflow();
        bucket = overflow() + (link - 1);
    }
}

void RowMap::split_next() {
    buckets_.ensure((num_buckets_ + 1) * sizeof(Bucket));
    Bucket* old = buckets() + (num_buckets_ - level_size_);
    moving_.clear();
    Bucket* bucket = old;
    for (uint32_t link = 0;;) {
        for (unsigned slot = 0; slot < kSlots && bucket->rows[slot] != 0; slot++) {
            moving_.push_back({bucket->keys[slot], bucket->rows[slot]});
            bucket->rows[slot] = 0;
        }
        const uint32_t next = bucket->rows[kSlots];
        bucket->rows[kSlots] = 0;
        if (link != 0) {
            bucket->rows[kSlots] = free_overflow_;
            free_overflow_ = link;
        }
        if (next == 0) break;
        link = next;
        bucket = overflow() + (link - 1);
    }
    num_buckets_++;
    for (const Entry& entry : moving_) append(buckets() + place(hash(entry.key)), entry);
    if (num_buckets_ == 2 * level_size_) level_size_ *= 2;
}

uint32_t RowMap::take_overflow() {
    if (free_overflow_ == 0) {
        overflow_.ensure((num_overflow_ + 1) * sizeof(Bucket));
        return static_cast<uint32_t>(++num_overflow_);
    }
    const uint32_t taken = free_overflow_;
    uint32_t& link = (overflow() + (taken - 1))->rows[kSlots];
    free_overflow_ = link;
    link = 0;
    return taken;
}

void RowMap::write_keys(uint64_t* keys) const {
    for (size_t i = 0; i < num_buckets_; i++) {
        for (const Bucket* bucket = buckets() + i;;) {
            for (unsigned slot = 0; slot < kSlots && bucket->rows[slot] != 0; slot++) {
                keys[bucket->rows[slot] - 1] = bucket->keys[slot];
            }
            if (bucket->rows[kSlots] == 0) break;
            bucket = overflow() + (bucket->rows[kSlots] - 1);
        }
    }
}

}  // namespace geartrain
