// Rows on the wire in fp16, bf16 and int8; defined in reference/wire_codec.py.
//
// All arithmetic is on integers, or on floats in a stated order and rounded as IEEE 754 says, so every build gives the
// same bits; F16C's conversions round alike. An encoded row may lie at any address. Encoders return the first row that
// is not finite, decoders the first that no encoder makes, or -1.
#include <algorithm>
#include <cstring>

#include "arrays.h"

#if defined(__AVX2__) && defined(__F16C__)
#define GEARTRAIN_EIGHTS
#include <immintrin.h>
#endif

namespace geartrain {

constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
constexpr int32_t kBias = 127, kLeastExponent = 15, kTopExponent = 14;
constexpr int64_t kNone = -1;

template <typename T>
static inline T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

template <typename T>
static inline void store(void* to, const T& value) {
    std::memcpy(to, &value, sizeof(T));
}

template <typename To, typename From>
static inline To bits_as(const From& value) {
    static_assert(sizeof(To) == sizeof(From));
    return load<To>(&value);
}

#ifdef GEARTRAIN_EIGHTS
// `body(d)` for the values from d to d + 8; the last eight may overlap those before. How many of `size` are done then.
template <typename Body>
static inline size_t in_eights(size_t size, Body body) {
    if (size < 8) return 0;
    for (size_t d = 0; d + 8 <= size; d += 8) body(d);
    if (size % 8 != 0) body(size - 8);
    return size;
}

template <typename Pick>
static inline int32_t over_lanes(__m256i lanes, Pick pick) {
    __m128i half = pick(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    half = pick(half, _mm_unpackhi_epi64(half, half));
    return _mm_cvtsi128_si32(pick(half, _mm_shuffle_epi32(half, 1)));
}

static inline int32_t largest_of(__m256i lanes) {
    return over_lanes(lanes, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
}

static inline int32_t least_of(__m256i lanes) {
    return over_lanes(lanes, [](__m128i a, __m128i b) { return _mm_min_epi32(a, b); });
}
#endif

// The largest of the magnitudes, as the integer of its bits.
static inline int32_t largest_magnitude(const float* __restrict values, size_t size) {
    int32_t largest = 0;
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    const __m256i mask = _mm256_set1_epi32(kMagnitude);
    __m256i lanes = _mm256_setzero_si256();
    d = in_eights(size, [&](size_t at) {
        lanes = _mm256_max_epi32(lanes, _mm256_and_si256(load<__m256i>(values + at), mask));
    });
    largest = largest_of(lanes);
#endif
    for (; d < size; d++) largest = std::max(largest, load<int32_t>(values + d) & kMagnitude);
    return largest;
}

static inline int64_t first_not_finite(const float* values, size_t dim) {
    int64_t row = 0;
    for (; largest_magnitude(values, dim) < kInfinity; values += dim) row++;
    return row;
}

static inline int32_t exponent_of(int32_t magnitude) { return std::max(magnitude >> 23, kLeastExponent); }

// Times this factor, a value of that exponent lies in [2^14, 2^15); `unscale_of` leads back.
static inline float scale_of(int32_t exponent) { return bits_as<float>((kTopExponent + 2 * kBias - exponent) << 23); }
static inline float unscale_of(int32_t exponent) { return bits_as<float>((exponent - kTopExponent) << 23); }

// --- fp16 ------------------------------------------------------------------------------------------------------------

constexpr int32_t kLargestHalf = 0x77FF, kHalfBias = 112 << 23, kLeastNormalHalf = 113 << 23;

// Of |value| < 2^15: the nearest half, ties to even, but not 2^15.
static inline uint16_t half_of(float value) {
    const int32_t bits = bits_as<int32_t>(value), magnitude = bits & kMagnitude;
    const int32_t normal = (magnitude - kHalfBias + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    // The last bit of a float in [0.5, 1) weighs as much as that of a half below 2^-14.
    const int32_t small = bits_as<int32_t>(bits_as<float>(magnitude) + 0.5f) - bits_as<int32_t>(0.5f);
    const int32_t half = magnitude < kLeastNormalHalf ? small : normal;
    return static_cast<uint16_t>(std::min(half, kLargestHalf) | ((bits >> 16) & 0x8000));
}

static inline float float_of(uint16_t half) {
    const int32_t magnitude = half & 0x7FFF;
    const int32_t normal = (magnitude << 13) + kHalfBias;
    const int32_t small = bits_as<int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    return bits_as<float>(static_cast<uint32_t>(magnitude < 0x400 ? small : normal) | sign);
}

static inline void to_halves(const float* __restrict from, float scale, uint8_t* __restrict to, size_t dim) {
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    const __m256 scales = _mm256_set1_ps(scale);
    const __m128i sign_bit = _mm_set1_epi16(INT16_MIN), most = _mm_set1_epi16(kLargestHalf);
    d = in_eights(dim, [&](size_t at) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from + at), scales);
        const __m128i halves = _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT);
        const __m128i sign = _mm_and_si128(halves, sign_bit);
        store(to + 2 * at, _mm_or_si128(_mm_min_epu16(_mm_xor_si128(halves, sign), most), sign));
    });
#endif
    for (; d < dim; d++) store(to + 2 * d, half_of(from[d] * scale));
}

// Whether all are halves that an encoder makes.
static inline bool from_halves(const uint8_t* __restrict from, float unscale, float* __restrict to, size_t dim) {
    int32_t largest = 0;
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    const __m256 unscales = _mm256_set1_ps(unscale);
    const __m128i mask = _mm_set1_epi16(INT16_MAX);
    __m128i lanes = _mm_setzero_si128();
    d = in_eights(dim, [&](size_t at) {
        const __m128i halves = load<__m128i>(from + 2 * at);
        lanes = _mm_max_epu16(lanes, _mm_and_si128(halves, mask));
        _mm256_storeu_ps(to + at, _mm256_mul_ps(_mm256_cvtph_ps(halves), unscales));
    });
    largest = largest_of(_mm256_cvtepu16_epi32(lanes));
#endif
    for (; d < dim; d++) {
        const uint16_t half = load<uint16_t>(from + 2 * d);
        largest = std::max(largest, half & 0x7FFF);
        to[d] = float_of(half) * unscale;
    }
    return largest <= kLargestHalf;
}

static int64_t encode_fp16(Matrix<const float> rows, Matrix<uint8_t> out) {
    const size_t num_rows = rows.shape(0), dim = rows.shape(1), row_bytes = out.shape(1);
    const float* from = rows.data();
    uint8_t* to = out.data();
    for (size_t row = 0; row < num_rows; row++, from += dim, to += row_bytes) {
        const int32_t largest = largest_magnitude(from, dim);
        if (largest >= kInfinity) return static_cast<int64_t>(row);
        const int32_t exponent = exponent_of(largest);
        to_halves(from, scale_of(exponent), to, dim);
        store(to + 2 * dim, static_cast<uint16_t>(exponent << 7));
    }
    return kNone;
}

static int64_t decode_fp16(Matrix<const uint8_t> encoded, Matrix<float> out) {
    const size_t num_rows = out.shape(0), dim = out.shape(1), row_bytes = encoded.shape(1);
    const uint8_t* from = encoded.data();
    float* to = out.data();
    for (size_t row = 0; row < num_rows; row++, from += row_bytes, to += dim) {
        const int32_t field = load<uint16_t>(from + 2 * dim), exponent = field >> 7;
        const bool fits = (field & 0x7F) == 0 && exponent >= kLeastExponent && exponent <= 2 * kBias;
        if (!fits || !from_halves(from, unscale_of(exponent), to, dim)) return static_cast<int64_t>(row);
    }
    return kNone;
}

// --- bf16 ------------------------------------------------------------------------------------------------------------

constexpr uint32_t kLargestBf16 = 0x7F7F;

static int64_t encode_bf16(Matrix<const float> rows, Matrix<uint8_t> out) {
    const size_t size = rows.size();
    const float* __restrict from = rows.data();
    uint8_t* __restrict to = out.data();
    uint32_t largest = 0;
    for (size_t i = 0; i < size; i++) {
        const uint32_t bits = bits_as<uint32_t>(from[i]), magnitude = bits & kMagnitude;
        largest = std::max(largest, magnitude);
        const uint32_t rounded = std::min((magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16, kLargestBf16);
        store(to + 2 * i, static_cast<uint16_t>(rounded | ((bits >> 16) & 0x8000)));
    }
    return largest < kInfinity ? kNone : first_not_finite(from, rows.shape(1));
}

static int64_t decode_bf16(Matrix<const uint8_t> encoded, Matrix<float> out) {
    const size_t size = out.size();
    const uint8_t* __restrict from = encoded.data();
    float* __restrict to = out.data();
    uint32_t largest = 0;
    for (size_t i = 0; i < size; i++) {
        const uint32_t value = load<uint16_t>(from + 2 * i);
        largest = std::max(largest, value & 0x7FFF);
        to[i] = bits_as<float>(value << 16);
    }
    return largest <= kLargestBf16 ? kNone : first_not_finite(to, out.shape(1));
}

// --- int8 ------------------------------------------------------------------------------------------------------------

constexpr float kSteps = 255.0f;

struct Ends {
    float least, largest;
};

// Bits of floats as integers in the order of the floats, and back.
static inline int32_t flipped(int32_t bits) { return bits ^ ((bits >> 31) & kMagnitude); }

static inline Ends ends_of(const float* __restrict values, size_t size) {
    int32_t first = INT32_MAX, last = INT32_MIN;
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    __m256i low = _mm256_set1_epi32(INT32_MAX), high = _mm256_set1_epi32(INT32_MIN);
    d = in_eights(size, [&](size_t at) {
        const __m256i bits = load<__m256i>(values + at);
        const __m256i ordered = _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
        low = _mm256_min_epi32(low, ordered);
        high = _mm256_max_epi32(high, ordered);
    });
    first = least_of(low);
    last = largest_of(high);
#endif
    for (; d < size; d++) {
        const int32_t ordered = flipped(load<int32_t>(values + d));
        first = std::min(first, ordered);
        last = std::max(last, ordered);
    }
    return {bits_as<float>(flipped(first)), bits_as<float>(flipped(last))};
}

// The ends and what their row is computed with: scaled, so that nothing overflows.
struct Range {
    bool is_finite;
    float scale, unscale, low, high;
};

static inline Range range_of(Ends ends) {
    const int32_t least = bits_as<int32_t>(ends.least) & kMagnitude;
    const int32_t largest = std::max(least, bits_as<int32_t>(ends.largest) & kMagnitude);
    const int32_t exponent = exponent_of(largest);
    const float scale = scale_of(exponent);
    return {largest < kInfinity, scale, unscale_of(exponent), ends.least * scale, ends.largest * scale};
}

static inline void to_steps(const float* __restrict from, Range range, uint8_t* __restrict to, size_t dim) {
    const float width = range.high - range.low, per_value = width > 0 ? kSteps / width : 0.0f;
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    const __m256 scale = _mm256_set1_ps(range.scale), low = _mm256_set1_ps(range.low);
    const __m256 factor = _mm256_set1_ps(per_value), half = _mm256_set1_ps(0.5f);
    d = in_eights(dim, [&](size_t at) {
        const __m256 above = _mm256_sub_ps(_mm256_mul_ps(_mm256_loadu_ps(from + at), scale), low);
        const __m256i steps = _mm256_cvttps_epi32(_mm256_add_ps(_mm256_mul_ps(above, factor), half));
        const __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(steps), _mm256_extracti128_si256(steps, 1));
        store(to + at, _mm_cvtsi128_si64(_mm_packus_epi16(narrow, narrow)));
    });
#endif
    for (; d < dim; d++) {
        to[d] = static_cast<uint8_t>(static_cast<int32_t>((from[d] * range.scale - range.low) * per_value + 0.5f));
    }
}

static inline void from_steps(const uint8_t* __restrict from, Range range, float* __restrict to, size_t dim) {
    const float step = (range.high - range.low) * (1 / kSteps);
    size_t d = 0;
#ifdef GEARTRAIN_EIGHTS
    const __m256 steps = _mm256_set1_ps(step), low = _mm256_set1_ps(range.low);
    const __m256 high = _mm256_set1_ps(range.high), unscale = _mm256_set1_ps(range.unscale);
    d = in_eights(dim, [&](size_t at) {
        const __m256i numbers = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(load<int64_t>(from + at)));
        const __m256 scaled = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(numbers), steps), low);
        _mm256_storeu_ps(to + at, _mm256_mul_ps(_mm256_min_ps(scaled, high), unscale));
    });
#endif
    for (; d < dim; d++) {
        const float scaled = static_cast<float>(static_cast<int32_t>(from[d])) * step + range.low;
        to[d] = (scaled < range.high ? scaled : range.high) * range.unscale;
    }
}

static int64_t encode_int8(Matrix<const float> rows, Matrix<uint8_t> out) {
    const size_t num_rows = rows.shape(0), dim = rows.shape(1), row_bytes = out.shape(1);
    const float* from = rows.data();
    uint8_t* to = out.data();
    for (size_t row = 0; row < num_rows; row++, from += dim, to += row_bytes) {
        const Ends ends = ends_of(from, dim);
        const Range range = range_of(ends);
        if (!range.is_finite) return static_cast<int64_t>(row);
        to_steps(from, range, to, dim);
        store(to + dim, ends);
    }
    return kNone;
}

static int64_t decode_int8(Matrix<const uint8_t> encoded, Matrix<float> out) {
    const size_t num_rows = out.shape(0), dim = out.shape(1), row_bytes = encoded.shape(1);
    const uint8_t* from = encoded.data();
    float* to = out.data();
    for (size_t row = 0; row < num_rows; row++, from += row_bytes, to += dim) {
        const Ends ends = load<Ends>(from + dim);
        const Range range = range_of(ends);
        if (!range.is_finite || ends.least > ends.largest) return static_cast<int64_t>(row);
        from_steps(from, range, to, dim);
    }
    return kNone;
}

void bind_wire_codec(nb::module_& module) {
    module.def("encode_fp16", &encode_fp16, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_fp16", &decode_fp16, array_argument("encoded"), array_argument("out"), WithoutGil());
    module.def("encode_bf16", &encode_bf16, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_bf16", &decode_bf16, array_argument("encoded"), array_argument("out"), WithoutGil());
    module.def("encode_int8", &encode_int8, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_int8", &decode_int8, array_argument("encoded"), array_argument("out"), WithoutGil());
}

}  // namespace geartrain
