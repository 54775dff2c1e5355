// Short loops over a row's floats, written so that compilers make vector code of them and not calls.
#pragma once

#include <cstddef>
#include <cstdint>
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

// `to` and `from` may be the same.
inline void divide_floats(float* to, const float* from, float divisor, size_t size) {
    for (size_t i = 0; i < size; i++) to[i] = from[i] / divisor;
}

// Eight floats as compilers understand them on every architecture: one AVX register, or two of SSE or NEON. Written out
// where the loops around them would not be made vector code of.
typedef float Float8 __attribute__((vector_size(32)));

inline Float8 load8(const float* from) {
    Float8 eight;
    std::memcpy(&eight, from, sizeof eight);
    return eight;
}

inline void store8(float* to, Float8 eight) { std::memcpy(to, &eight, sizeof eight); }

// These are by eights: of the plain loops GCC makes code that takes two to four times as long for a row of 16.
// A copy that has no negative zero, as a sum has none.
inline void add_to_zero(float* __restrict to, const float* __restrict from, size_t size) {
    const size_t whole = size / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) store8(to + i, Float8{} + load8(from + i));
    for (size_t i = whole; i < size; i++) to[i] = 0.0f + from[i];
}

inline void add_floats(float* __restrict to, const float* __restrict from, size_t size) {
    const size_t whole = size / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) store8(to + i, load8(to + i) + load8(from + i));
    for (size_t i = whole; i < size; i++) to[i] += from[i];
}

inline void add_weighted(float* __restrict to, const float* __restrict from, float weight, size_t size) {
    const size_t whole = size / 8 * 8;
    for (size_t i = 0; i < whole; i += 8) store8(to + i, load8(to + i) + load8(from + i) * weight);
    for (size_t i = whole; i < size; i++) to[i] += from[i] * weight;
}

// The sum of the lanes, as a tree.
inline float sum8(Float8 eight) {
    typedef float Float4 __attribute__((vector_size(16)));
    Float4 low, high;
    std::memcpy(&low, &eight, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&eight) + sizeof low, sizeof high);
    const Float4 four = low + high;
    const Float4 two = four + Float4{four[2], four[3], four[2], four[3]};
    return two[0] + two[1];
}

// Asks for every cache line of [begin, begin + bytes), bytes > 0. Inlined always, as all functions that only prefetch
// must be: GCC drops calls of a function that computes nothing.
template <int kForWriting>
[[gnu::always_inline]] inline void prefetch_bytes(const void* begin, size_t bytes) {
    const char* const first = static_cast<const char*>(begin);
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at, kForWriting);
    __builtin_prefetch(first + bytes - 1, kForWriting);  // where they do not begin with a line
}

// The same for records that lie side by side from the start of a cache line, and fill lines or share one.
template <int kForWriting, size_t kBytes>
[[gnu::always_inline]] inline void prefetch_record(const void* begin) {
    static_assert(kBytes % 64 == 0 || 64 % kBytes == 0);
    for (size_t at = 0; at < kBytes; at += 64) {
        __builtin_prefetch(static_cast<const char*>(begin) + at, kForWriting);
    }
}

constexpr bool fits_cache_lines(size_t bytes) { return bytes != 0 && (bytes % 64 == 0 || 64 % bytes == 0); }

}  // namespace geartrain
