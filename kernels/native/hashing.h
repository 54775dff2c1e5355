// The 64-bit mix and what is taken from it. Part of the checkpoint format; defined in reference/hashing.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace geartrain {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr int kShardShift = 54;

inline uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

inline uint64_t hash_bytes(const uint8_t* bytes, size_t size, uint64_t seed) {
    uint64_t hash = mix64(seed ^ (size + 1) * kGolden);
    uint64_t word;
    for (; size >= 8; bytes += 8, size -= 8) {
        std::memcpy(&word, bytes, 8);
        hash = mix64(hash ^ word);
    }
    if (size > 0) {
        word = 0;
        std::memcpy(&word, bytes, size);
        hash = mix64(hash ^ word);
    }
    return hash;
}

}  // namespace geartrain
