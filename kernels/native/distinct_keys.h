// Numbers distinct keys in order of first occurrence: a small open-addressing set that is reused from call to call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hashing.h"

namespace geartrain {

class DistinctKeys {
public:
    // Forgets everything; at most `max_keys` keys will be added, distinct ones are written to `unique`, which has room
    // for all.
    void reset(size_t max_keys, uint64_t* unique) {
        size_t capacity = 16;
        while (capacity < 2 * max_keys) capacity *= 2;
        mask_ = capacity - 1;
        slots_.assign(capacity, 0);
        unique_ = unique;
        size_ = 0;
    }

    size_t size() const { return size_; }

    // Adds keys[0, size) and calls added(i, number, is_new, hash) for each, in order: a new key has the next number.
    //
    // Whether a key is new cannot be foreseen, so there is no branch on it: every key is written where a new one would
    // be, and an empty slot stands for that place. `added` does best without such a branch, too.
    template <typename Added>
    void add(const uint64_t* keys, size_t size, Added added) {
        uint32_t* const slots = slots_.data();
        uint64_t* const unique = unique_;
        const size_t mask = mask_;
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
            for (size_t place = hash & mask;; place = (place + 1) & mask) {
                const uint32_t stored = slots[place];
                const bool is_new = stored == 0;
                const uint32_t number = is_new ? num_distinct : stored - 1;
                if (__builtin_expect(unique[number] != key, 0)) continue;
                slots[place] = number + 1;
                num_distinct += is_new;
                added(i, number, is_new, hash);
                break;
            }
        }
        size_ = num_distinct;
    }

private:
    static constexpr size_t kAhead = 16;

    std::vector<uint32_t> slots_;  // number + 1, 0 is empty
    size_t mask_ = 0;
    uint64_t* unique_ = nullptr;
    uint32_t size_ = 0;
};

// The set of this thread; kept, because fresh memory would cost more than the work on it.
inline DistinctKeys& thread_distinct_keys() {
    thread_local DistinctKeys keys;
    return keys;
}

}  // namespace geartrain
