// How a row's values are stored: as float32, or as fp16 or bf16 rounded stochastically; defined in
// reference/low_precision.py. Low formats are widened, updated in float32 and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "floats.h"
#include "hashing.h"

namespace geartrain {

// Sixteen random bits for each column of a row at a version: the same on every server and after every restore.
class RoundingBits {
public:
    RoundingBits(uint64_t key, uint64_t seed, uint32_t version) : base_(mix64(mix64(key ^ seed) ^ version)) {}

    uint32_t operator()(size_t column) {
        if (column % 4 == 0) word_ = mix64(base_ + (column / 4 + 1) * kGolden);
        return (word_ >> (16 * (column % 4))) & 0xFFFF;
    }

private:
    uint64_t base_;
    uint64_t word_ = 0;
};

inline uint32_t float_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_from(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct Fp32 {
    using Stored = float;
    static void widen(const float* from, float* to, size_t size) { copy_floats(to, from, size); }
};

struct Bf16 {
    using Stored = uint16_t;

    static void widen(const uint16_t* from, float* to, size_t size) {
        for (size_t i = 0; i < size; i++) to[i] = float_from(uint32_t{from[i]} << 16);
    }

    static uint16_t round(float value, uint32_t random) {
        const uint32_t bits = float_bits(value);
        const uint32_t magnitude = bits & 0x7FFFFFFF;
        if (magnitude > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
        if (magnitude == 0x7F800000) return static_cast<uint16_t>(bits >> 16);
        const uint32_t rounded = (bits + random) >> 16;
        if ((rounded & 0x7FFF) == 0x7F80) return static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7F7F);
        return static_cast<uint16_t>(rounded);
    }
};

struct Fp16 {
    using Stored = uint16_t;

    static void widen(const uint16_t* from, float* to, size_t size) {
        // Shifted into place, a half's exponent is 112 too low, also for subnormals; infinity and NaN are set apart.
        for (size_t i = 0; i < size; i++) {
            const uint32_t shifted = uint32_t{from[i] & 0x7FFFu} << 13, sign = uint32_t{from[i] & 0x8000u} << 16;
            const float scaled = float_from(shifted) * 0x1p112f;
            const uint32_t special = shifted >= 0x0F800000 ? 0x70000000u : 0u;
            to[i] = float_from((special != 0 ? shifted + special : float_bits(scaled)) | sign);
        }
    }

    static uint16_t round(float value, uint32_t random) {
        const uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000;
        const float magnitude = float_from(bits & 0x7FFFFFFF);
        if (!(magnitude < 65504.0f)) return static_cast<uint16_t>(sign | (magnitude >= 65504.0f ? 0x7BFF : 0x7E00));
        if (magnitude >= 0x1p-14f) {
            const uint32_t half = (((bits & 0x7FFFFFFF) + (random >> 3)) >> 13) - (112u << 10);
            return static_cast<uint16_t>(sign | (half >= 0x7C00 ? 0x7BFF : half));
        }
        const float steps = magnitude * 0x1p24f;
        const uint32_t whole = static_cast<uint32_t>(steps);
        const float part = steps - static_cast<float>(whole);
        return static_cast<uint16_t>(sign | (whole + (part > static_cast<float>(random) * 0x1p-16f)));
    }
};

template <typename Format>
void round_row(const float* from, typename Format::Stored* to, size_t size, RoundingBits random) {
    for (size_t i = 0; i < size; i++) to[i] = Format::round(from[i], random(i));
}

}  // namespace geartrain
