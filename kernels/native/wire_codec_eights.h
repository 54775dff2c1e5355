// Rows on the wire with AVX2, a stretch of rows at a time: first what is one number per row (its scale, its ends), for
// eight rows in one vector, then the values. Two passes, because a processor has too little room to begin with the next
// rows while values wait for their row's numbers. There are at least eight rows of at least eight values; what is left
// over after whole eights is taken once more with what comes before. Functions say false where rows must be looked at
// one by one; what they wrote is void then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace geartrain {

constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
constexpr int32_t kBias = 127, kLeastExponent = 15, kTopExponent = 14;
constexpr int32_t kLargestHalf = 0x77FF, kLargestBf16 = 0x7F7F;
constexpr float kSteps = 255.0f;

// The formats whose rows have a head of their own, and the bytes of an encoded row.
struct Fp16 {
    static constexpr size_t bytes(size_t dim) { return 2 * dim + 2; }
};
struct Int8 {
    static constexpr size_t bytes(size_t dim) { return dim + 8; }
};

// Bytes between what is asked for and what is read, floats and encoded ones. What is written is not asked for: that was
// slower.
constexpr size_t kFloatsAhead = 8192, kEncodedAhead = 4096;

// Past the end that does no harm.
[[gnu::always_inline]] static inline void ask_ahead(const void* now, size_t bytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(now) + bytes));
}

namespace eights {

constexpr size_t kLanes = 8, kMostRows = 32, kBf16Values = 64;

// How many rows make a stretch: no more than lie in the nearest cache from the first pass to the second.
static inline size_t rows_of_a_stretch(size_t dim) {
    if (dim <= 17) return kMostRows;
    return dim <= 32 ? kMostRows / 2 : kLanes;
}

// Rows side by side, of kSize elements each, or of `run_time_size` where that is 0.
template <typename T, size_t kSize>
struct Rows {
    T* first;
    size_t count, run_time_size;

    size_t size() const { return kSize != 0 ? kSize : run_time_size; }
    T* operator[](size_t number) const { return first + number * size(); }
};

#if !defined(__AVX2__) || !defined(__F16C__)
constexpr bool kAreHere = false;

template <typename... Any>
static bool encode(const Any&...) { return false; }
template <typename... Any>
static bool decode(const Any&...) { return false; }
static inline bool encode_bf16(const float*, uint8_t*) { return false; }
#else
constexpr bool kAreHere = true;

// For lambdas, which [[gnu::always_inline]] does not reach.
#define GEARTRAIN_INLINED __attribute__((always_inline))

static inline __m256i ints(int32_t value) { return _mm256_set1_epi32(value); }
static inline __m256i load_ints(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
static inline bool any(__m256i lanes) { return !_mm256_testz_si256(lanes, lanes); }
static inline __m256i as_ints(__m256 floats) { return _mm256_castps_si256(floats); }
static inline __m256 as_floats(__m256i ints) { return _mm256_castsi256_ps(ints); }

struct Larger {
    __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epi32(a, b); }
};
struct LargerUnsigned {
    __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epu32(a, b); }
};
struct LeastUnsigned {
    __m256i operator()(__m256i a, __m256i b) const { return _mm256_min_epu32(a, b); }
};

// Calls visit(i) for what lies from i to i + 8, for all from `first` to `end`.
template <typename Visit>
[[gnu::always_inline]] static inline void each_eight(size_t first, size_t end, Visit visit) {
    size_t i = first;
    for (; i + kLanes <= end; i += kLanes) visit(i);
    if (i < end) visit(end - kLanes);
}

// A lane for each of eight rows: `pick` of the bits of all its values under `mask`.
template <bool kAsks, typename Pick, size_t kDim>
[[gnu::always_inline]] static inline __m256i over_rows(Pick pick, Rows<const float, kDim> rows, size_t first,
                                                       int32_t mask) {
    const auto eight = [=](const float* from) GEARTRAIN_INLINED {
        if (kAsks) ask_ahead(from, kFloatsAhead);
        return _mm256_and_si256(load_ints(from), ints(mask));
    };
    const auto one = [&](size_t number) GEARTRAIN_INLINED {
        const float* const row = rows[first + number];
        __m256i picked = eight(row);
        each_eight(kLanes, rows.size(), [&](size_t d) GEARTRAIN_INLINED { picked = pick(picked, eight(row + d)); });
        return picked;
    };
    const auto two = [&](size_t number) GEARTRAIN_INLINED {
        const __m256i a = one(number), b = one(number + 1);
        return pick(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    };
    const auto four = [&](size_t number) GEARTRAIN_INLINED {
        const __m256i a = two(number), b = two(number + 2);
        return pick(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    };
    const __m256i a = four(0), b = four(4);
    return pick(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

// As in wire_codec.cpp, of eight rows.
static inline __m256i exponents_of(__m256i magnitudes) {
    return _mm256_max_epi32(_mm256_srli_epi32(magnitudes, 23), ints(kLeastExponent));
}
static inline __m256 scales_of(__m256i exponents) {
    return as_floats(_mm256_slli_epi32(_mm256_sub_epi32(ints(kTopExponent + 2 * kBias), exponents), 23));
}
static inline __m256 unscales_of(__m256i exponents) {
    return as_floats(_mm256_slli_epi32(_mm256_sub_epi32(exponents, ints(kTopExponent)), 23));
}

// A number of each row of a stretch, from where it can be had as eight times the same.
struct PerRow {
    alignas(32) float values[kMostRows];

    void put(size_t row, __m256 lanes) { _mm256_storeu_ps(values + row, lanes); }
    __m256 operator[](size_t row) const { return _mm256_broadcast_ss(values + row); }
};

// --- fp16 ------------------------------------------------------------------------------------------------------------

// kMayReachTop: values may be there that round to 2^15.
template <bool kMayReachTop, size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline void to_halves(Rows<const float, kDim> rows, Rows<uint8_t, kSize> out,
                                                    const PerRow& scales, const PerRow& fields) {
    const __m128i sign_bit = _mm_set1_epi16(INT16_MIN), most = _mm_set1_epi16(kLargestHalf);
    const size_t dim = rows.size();
    for (size_t row = 0; row < rows.count; row++) {
        const float* const from = rows[row];
        uint8_t* const to = out[row];
        const __m256 scale = scales[row];
        each_eight(0, dim, [&](size_t d) GEARTRAIN_INLINED {
            const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from + d), scale);
            __m128i halves = _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
            if (kMayReachTop) {
                const __m128i sign = _mm_and_si128(halves, sign_bit);
                halves = _mm_or_si128(_mm_min_epu16(_mm_xor_si128(halves, sign), most), sign);
            }
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * d), halves);
        });
        std::memcpy(to + 2 * dim, fields.values + row, 2);
    }
}

template <size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline bool encode(Fp16, Rows<const float, kDim> rows, Rows<uint8_t, kSize> out) {
    PerRow scales, fields;
    __m256i refused = _mm256_setzero_si256(), reaches_top = refused;
    each_eight(0, rows.count, [&](size_t row) GEARTRAIN_INLINED {
        const __m256i largest = over_rows<true>(Larger(), rows, row, kMagnitude), exponents = exponents_of(largest);
        const __m256i mantissas = _mm256_and_si256(largest, ints(0x7FFFFF));
        refused = _mm256_or_si256(refused, _mm256_cmpgt_epi32(largest, ints(kInfinity - 1)));
        reaches_top = _mm256_or_si256(reaches_top, _mm256_cmpgt_epi32(mantissas, ints(0x7FEFFF)));
        scales.put(row, scales_of(exponents));
        fields.put(row, as_floats(_mm256_slli_epi32(exponents, 7)));
    });
    if (__builtin_expect(any(reaches_top), 0)) {
        to_halves<true>(rows, out, scales, fields);
    } else {
        to_halves<false>(rows, out, scales, fields);
    }
    return !any(refused);
}

template <size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline bool decode(Fp16, Rows<const uint8_t, kSize> rows, Rows<float, kDim> out) {
    const size_t dim = out.size();
    const auto field = [&](size_t row) GEARTRAIN_INLINED {
        int16_t value;
        std::memcpy(&value, rows[row] + 2 * dim, sizeof value);
        return value;
    };
    PerRow unscales;
    __m256i refused = _mm256_setzero_si256();
    each_eight(0, rows.count, [&](size_t row) GEARTRAIN_INLINED {
        const __m256i fields = _mm256_cvtepu16_epi32(
            _mm_setr_epi16(field(row), field(row + 1), field(row + 2), field(row + 3), field(row + 4), field(row + 5),
                           field(row + 6), field(row + 7)));
        unscales.put(row, unscales_of(_mm256_srli_epi32(fields, 7)));
        refused = _mm256_or_si256(refused, _mm256_and_si256(fields, ints(0x7F)));
        refused = _mm256_or_si256(refused, _mm256_cmpgt_epi32(ints(kLeastExponent << 7), fields));
        refused = _mm256_or_si256(refused, _mm256_cmpgt_epi32(fields, ints(2 * kBias << 7)));
    });
    const __m128i mask = _mm_set1_epi16(INT16_MAX);
    __m128i largest = _mm_setzero_si128();
    for (size_t row = 0; row < out.count; row++) {
        const uint8_t* const from = rows[row];
        float* const to = out[row];
        ask_ahead(from, kEncodedAhead);
        const __m256 unscale = unscales[row];
        each_eight(0, dim, [&](size_t d) GEARTRAIN_INLINED {
            const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * d));
            largest = _mm_max_epu16(largest, _mm_and_si128(halves, mask));
            _mm256_storeu_ps(to + d, _mm256_mul_ps(_mm256_cvtph_ps(halves), unscale));
        });
    }
    refused = _mm256_or_si256(refused, _mm256_cmpgt_epi32(_mm256_cvtepu16_epi32(largest), ints(kLargestHalf)));
    return !any(refused);
}

// --- bf16 ------------------------------------------------------------------------------------------------------------

// Of kBf16Values values; false where one is not finite, or may round to infinity.
[[gnu::always_inline]] static inline bool encode_bf16(const float* from, uint8_t* to) {
    const __m256i mask = _mm256_set1_epi16(INT16_MAX), half_less_one = _mm256_set1_epi16(0x7FFE);
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    __m256i largest = _mm256_setzero_si256();
    for (size_t i = 0; i < kBf16Values; i += 16) {
        ask_ahead(from + i, kFloatsAhead);
        // Upper and lower halves of the values, those of a and b in turns.
        const __m256i a = load_ints(from + i), b = load_ints(from + i + 8);
        const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xAA);
        const __m256i lower = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
        largest = _mm256_max_epi16(largest, _mm256_and_si256(upper, mask));
        // The average's top bit is the carry of lower + 0x7FFF + (upper & 1).
        const __m256i to_even = _mm256_and_si256(_mm256_or_si256(upper, half_less_one), mask);
        const __m256i carry = _mm256_srai_epi16(_mm256_avg_epu16(lower, to_even), 15);  // -1, or 0
        const __m256i rounded = _mm256_shuffle_epi8(_mm256_sub_epi16(upper, carry), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), _mm256_permute4x64_epi64(rounded, 0xD8));
    }
    return !any(_mm256_cmpgt_epi16(largest, _mm256_set1_epi16(kLargestBf16 - 1)));
}

// --- int8 ------------------------------------------------------------------------------------------------------------

// Rows whose largest magnitude has an exponent from kNear to kFar are computed without their scale: neither way does
// anything overflow or get too small to be exact, and a power of two changes no rounding.
constexpr int32_t kNear = 64, kFar = kBias + kTopExponent;

struct Ranges {
    __m256i is_infinite, needs_scale;
    __m256 scales, unscales, low, high;
};

static inline Ranges ranges_of(__m256 least, __m256 largest) {
    const __m256i mask = ints(kMagnitude);
    const __m256i magnitudes =
        _mm256_max_epi32(_mm256_and_si256(as_ints(least), mask), _mm256_and_si256(as_ints(largest), mask));
    const __m256i exponents = exponents_of(magnitudes);
    const __m256i is_small = _mm256_cmpgt_epi32(ints(kNear), exponents);
    const __m256i is_large = _mm256_cmpgt_epi32(exponents, ints(kFar));
    const __m256 scales = scales_of(exponents);
    return {_mm256_cmpgt_epi32(magnitudes, ints(kInfinity - 1)), _mm256_or_si256(is_small, is_large),
            scales, unscales_of(exponents), _mm256_mul_ps(least, scales), _mm256_mul_ps(largest, scales)};
}

template <bool kScaled>
[[gnu::always_inline]] static inline __m256i steps_of(const float* from, __m256 scale, __m256 low, __m256 factor) {
    __m256 values = _mm256_loadu_ps(from);
    if (kScaled) values = _mm256_mul_ps(values, scale);
    const __m256 steps = _mm256_mul_ps(_mm256_sub_ps(values, low), factor);
    return _mm256_cvttps_epi32(_mm256_add_ps(steps, _mm256_set1_ps(0.5f)));
}

template <bool kScaled, size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline void to_steps(Rows<const float, kDim> rows, Rows<uint8_t, kSize> out,
                                                   const PerRow& scales, const PerRow& lows, const PerRow& factors) {
    const size_t dim = rows.size();
    for (size_t row = 0; row < rows.count; row++) {
        const float* const from = rows[row];
        uint8_t* const to = out[row];
        const __m256 scale = scales[row], low = lows[row], factor = factors[row];
        size_t d = 0;
        for (; d + 16 <= dim; d += 16) {
            const __m256i words = _mm256_packus_epi32(steps_of<kScaled>(from + d, scale, low, factor),
                                                      steps_of<kScaled>(from + d + 8, scale, low, factor));
            const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d), _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0)));
        }
        each_eight(d, dim, [&](size_t at) GEARTRAIN_INLINED {
            const __m256i steps = steps_of<kScaled>(from + at, scale, low, factor);
            const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(steps), _mm256_extracti128_si256(steps, 1));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(to + at), _mm_packus_epi16(words, words));
        });
    }
}

template <size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline bool encode(Int8, Rows<const float, kDim> rows, Rows<uint8_t, kSize> out) {
    PerRow scales, lows, factors, far_lows, far_factors;
    __m256i refused = _mm256_setzero_si256(), needs_scale = refused;
    each_eight(0, rows.count, [&](size_t row) GEARTRAIN_INLINED {
        // By their bits, values below zero come in reverse, behind all others or (with a sign) before them. So the
        // largest without a sign is the least value if one is below zero, the largest with a sign is the largest value
        // if one is not, and the least without a sign is the other end where all are of one kind.
        const __m256i lowest = over_rows<true>(LargerUnsigned(), rows, row, -1);
        const __m256i nearest = over_rows<false>(LeastUnsigned(), rows, row, -1);
        const __m256i highest = over_rows<false>(Larger(), rows, row, -1);
        const __m256 least = _mm256_blendv_ps(as_floats(nearest), as_floats(lowest), as_floats(lowest));
        const __m256 largest = _mm256_blendv_ps(as_floats(highest), as_floats(nearest), as_floats(highest));
        const Ranges ranges = ranges_of(least, largest);
        refused = _mm256_or_si256(refused, ranges.is_infinite);
        needs_scale = _mm256_or_si256(needs_scale, ranges.needs_scale);
        const __m256 width = _mm256_sub_ps(ranges.high, ranges.low);
        const __m256 factor = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(kSteps), width),
                                            _mm256_cmp_ps(width, _mm256_setzero_ps(), _CMP_GT_OQ));
        scales.put(row, ranges.scales);
        far_lows.put(row, ranges.low);
        far_factors.put(row, factor);
        lows.put(row, least);
        factors.put(row, _mm256_mul_ps(factor, ranges.scales));
        const __m256 a = _mm256_unpacklo_ps(least, largest), b = _mm256_unpackhi_ps(least, largest);
        alignas(32) float ends[2 * kLanes];
        _mm256_store_ps(ends, _mm256_permute2f128_ps(a, b, 0x20));
        _mm256_store_ps(ends + kLanes, _mm256_permute2f128_ps(a, b, 0x31));
        for (size_t i = 0; i < kLanes; i++) std::memcpy(out[row + i] + rows.size(), ends + 2 * i, 8);
    });
    if (__builtin_expect(any(needs_scale), 0)) {
        to_steps<true>(rows, out, scales, far_lows, far_factors);
    } else {
        to_steps<false>(rows, out, scales, lows, factors);
    }
    return !any(refused);
}

template <bool kScaled, size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline void from_steps(Rows<const uint8_t, kSize> rows, Rows<float, kDim> out,
                                                     const PerRow& steps, const PerRow& lows, const PerRow& highs,
                                                     const PerRow& unscales) {
    for (size_t row = 0; row < out.count; row++) {
        const uint8_t* const from = rows[row];
        float* const to = out[row];
        ask_ahead(from, kEncodedAhead);
        const __m256 step = steps[row], low = lows[row], high = highs[row], unscale = unscales[row];
        each_eight(0, out.size(), [&](size_t d) GEARTRAIN_INLINED {
            const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + d));
            const __m256 numbers = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            const __m256 values = _mm256_min_ps(_mm256_add_ps(_mm256_mul_ps(numbers, step), low), high);
            _mm256_storeu_ps(to + d, kScaled ? _mm256_mul_ps(values, unscale) : values);
        });
    }
}

template <size_t kDim, size_t kSize>
[[gnu::always_inline]] static inline bool decode(Int8, Rows<const uint8_t, kSize> rows, Rows<float, kDim> out) {
    const auto ends = [&](size_t row) GEARTRAIN_INLINED {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[row] + out.size()));
    };
    const auto four = [&](size_t row) GEARTRAIN_INLINED {
        const __m128i low = _mm_unpacklo_epi64(ends(row), ends(row + 1));
        return as_floats(_mm256_set_m128i(_mm_unpacklo_epi64(ends(row + 4), ends(row + 5)), low));
    };
    PerRow steps, lows, highs, far_steps, far_lows, far_highs, unscales;
    __m256i refused = _mm256_setzero_si256(), needs_scale = refused;
    each_eight(0, rows.count, [&](size_t row) GEARTRAIN_INLINED {
        const __m256 a = four(row), b = four(row + 2);
        const __m256 least = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0));
        const __m256 largest = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1));
        const Ranges ranges = ranges_of(least, largest);
        const __m256i is_turned = as_ints(_mm256_cmp_ps(least, largest, _CMP_GT_OQ));
        refused = _mm256_or_si256(refused, _mm256_or_si256(ranges.is_infinite, is_turned));
        needs_scale = _mm256_or_si256(needs_scale, ranges.needs_scale);
        const __m256 step = _mm256_mul_ps(_mm256_sub_ps(ranges.high, ranges.low), _mm256_set1_ps(1 / kSteps));
        far_steps.put(row, step);
        far_lows.put(row, ranges.low);
        far_highs.put(row, ranges.high);
        unscales.put(row, ranges.unscales);
        steps.put(row, _mm256_mul_ps(step, ranges.unscales));
        lows.put(row, least);
        highs.put(row, largest);
    });
    if (__builtin_expect(any(needs_scale), 0)) {
        from_steps<true>(rows, out, far_steps, far_lows, far_highs, unscales);
    } else {
        from_steps<false>(rows, out, steps, lows, highs, unscales);
    }
    return !any(refused);
}

#undef GEARTRAIN_INLINED
#endif

}  // namespace eights
}  // namespace geartrain
