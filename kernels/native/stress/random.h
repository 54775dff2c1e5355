// Seeded random numbers: the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hashing.h"

namespace geartrain::stress {

class Random {
public:
    explicit Random(uint64_t seed) : state_(mix64(seed + kGolden)) {}

    uint64_t next() { return mix64(state_ += kGolden); }
    size_t below(size_t limit) { return next() % limit; }
    bool one_in(size_t chances) { return below(chances) == 0; }
    float between(float low, float high) {
        return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f;
    }

private:
    uint64_t state_;
};

// The key with this hash.
inline uint64_t unmix64(uint64_t x) {
    x ^= x >> 31 ^ x >> 62;
    x *= 0x319642B2D24D8EC3;
    x ^= x >> 27 ^ x >> 54;
    x *= 0x96DE1B173F119089;
    return x ^ x >> 30 ^ x >> 60;
}

}  // namespace geartrain::stress
