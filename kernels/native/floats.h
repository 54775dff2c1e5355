// Short loops over a row's floats, written so that compilers make vector code of them and not calls.
#pragma once

#include <cstddef>
#include <cstring>

namespace geartrain {

inline void copy_floats(float* __restrict to, const float* __restrict from, size_t size) {
    size_t i = 0;
    for (; i + 8 <= size; i += 8) std::memcpy(to + i, from + i, 8 * sizeof(float));
    if (size & 4) {
        std::memcpy(to + i, from + i, 4 * sizeof(float));
        i += 4;
    }
    for (; i < size; i++) std::memcpy(to + i, from + i, sizeof(float));
}

inline void add_floats(float* __restrict to, const float* __restrict from, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] += from[i];
}

inline void add_weighted(float* __restrict to, const float* __restrict from, float weight, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] += from[i] * weight;
}

inline void divide_floats(float* __restrict to, const float* from, float divisor, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] = from[i] / divisor;
}

// Asks for every cache line of [begin, begin + bytes).
template <int kForWriting>
inline void prefetch_bytes(const void* begin, size_t bytes) {
    const char* at = static_cast<const char*>(begin);
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, kForWriting);
    __builtin_prefetch(at + bytes - 1, kForWriting);
}

}  // namespace geartrain
