// Numbers distinct keys in order of first occurrence: a small open-addressing set that is reused from call to call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hashing.h"
#include "region.h"

namespace geartrain {

class DistinctKeys {
public:
    // Forgets everything; at most `max_keys` keys, fewer than 2**32, will be added. Distinct ones are written to
    // `unique`, which has room for all.
    void reset(size_t max_keys, uint64_t* unique) {
        size_t capacity = 16;
        while (capacity < 4 * max_keys) capacity *= 2;
        mask_ = capacity - 1;
        number_mask_ = 1;
        while (number_mask_ < max_keys) number_mask_ = number_mask_ << 1 | 1;
        make_room(capacity * sizeof(uint32_t));
        std::fill_n(slots(), capacity, 0);
        unique_ = unique;
        size_ = 0;
    }

    size_t size() const { return size_; }

    // Adds keys[0, size) and calls added(i, number, is_new, hash) for each, in order: a new key has the next number.
    //
    // Whether a key is new cannot be foreseen, so there is no branch on it: every key is written where a new one would
    // be, and an empty slot stands for that place. `added` does best without such a branch, too. That a slot is taken
    // by another key cannot be foreseen either: slots are many, so that it is rare, and have room for some of the
    // hash, so that it is mostly known before the key itself has come from memory.
    template <typename Added>
    void add(const uint64_t* keys, size_t size, Added added) {
        uint32_t* const slots = this->slots();
        uint64_t* const unique = unique_;
        const size_t mask = mask_;
        const uint32_t number_mask = number_mask_, tag_mask = ~number_mask;
        uint32_t num_distinct = size_;
        uint64_t hashes[kAhead];
        for (size_t i = 0; i < std::min(size, kAhead); i++) hashes[i] = mix64(keys[i]);
        for (size_t i = 0; i < size; i++) {
            const uint64_t key = keys[i], hash = hashes[i % kAhead];
            if (i + kAhead < size) {
                const uint64_t next = mix64(keys[i + kAhead]);
                hashes[i % kAhead] = next;
                __builtin_prefetch(slots + (next & mask), 1);
            }
            unique[num_distinct] = key;
            const uint32_t tag = static_cast<uint32_t>(hash >> kTagShift) & tag_mask;
            const uint32_t as_new = tag | (num_distinct + 1);
            for (size_t place = hash & mask;; place = (place + 1) & mask) {
                const uint32_t stored = slots[place];
                const bool is_new = stored == 0;
                const uint32_t slot = is_new ? as_new : stored;
                if (__builtin_expect((slot & tag_mask) != tag, 0)) continue;
                const uint32_t number = (slot & number_mask) - 1;
                if (__builtin_expect(unique[number] != key, 0)) continue;
                slots[place] = slot;
                num_distinct += is_new;
                added(i, number, is_new, hash);
                break;
            }
        }
        size_ = num_distinct;
    }

private:
    static constexpr size_t kAhead = 16;
    // Tags end below the bits of the shard, of which all keys of a server may have the same.
    static constexpr unsigned kTagShift = kShardShift - 32;

    // Number + 1, and in the bits that no number needs, those of the hash; 0 is empty.
    uint32_t* slots() const { return reinterpret_cast<uint32_t*>(region_.data()); }

    // Visits of slots are random, so where small pages happen to lie can double the time of a large set.
    void make_room(size_t bytes) {
        if (bytes <= room_) return;
        region_.release(0, room_);
        room_ = 0;
        region_.commit(0, bytes);
        region_.use_huge_pages(0, bytes, bytes >= kHugePage);
        room_ = bytes;
    }

    Region region_{size_t{1} << 36};
    size_t room_ = 0;  // bytes
    size_t mask_ = 0;
    uint32_t number_mask_ = 0;
    uint64_t* unique_ = nullptr;
    uint32_t size_ = 0;
};

// The set of this thread; kept, 16 to 32 bytes for each key of the largest call, because fresh memory would cost more
// than the work on it.
inline DistinctKeys& thread_distinct_keys() {
    thread_local DistinctKeys keys;
    return keys;
}

}  // namespace geartrain
