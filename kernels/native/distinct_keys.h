// Numbers distinct keys in order of first occurrence: a small open-addressing set that is reused from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace geartrain {

class DistinctKeys {
public:
    // Forgets everything; at most `max_keys` keys will be added, distinct ones are written to `unique`.
    void reset(size_t max_keys, uint64_t* unique) {
        size_t capacity = 16;
        while (capacity < 2 * max_keys) capacity *= 2;
        mask_ = capacity - 1;
        slots_.assign(capacity, 0);
        unique_ = unique;
        size_ = 0;
    }

    size_t size() const { return size_; }

    void prefetch(uint64_t hash) const { __builtin_prefetch(slots_.data() + (hash & mask_), 1); }

    // The number of `key`; equal to size() before the call when it is new. `hash` is a mix of the key.
    uint32_t add(uint64_t key, uint64_t hash) {
        for (size_t place = hash & mask_;; place = (place + 1) & mask_) {
            const uint32_t number = slots_[place];
            if (number == 0) {
                unique_[size_] = key;
                slots_[place] = ++size_;
                return size_ - 1;
            }
            if (unique_[number - 1] == key) return number - 1;
        }
    }

private:
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
