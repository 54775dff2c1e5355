// Rows on the wire in fp16, bf16 and int8; defined in reference/wire_codec.py.
//
// All arithmetic is on integers, or on floats in a stated order and rounded as IEEE 754 says, so every build gives the
// same bits; F16C's conversions round alike. An encoded row may lie at any address. Encoders return the first row that
// is not finite, decoders the first that no encoder makes, or -1. What is here for single rows is what builds without
// AVX2 run, and what tells which row of several is refused; wire_codec_eights.h has the other.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "arrays.h"
#include "common_dims.h"
#include "wire_codec_eights.h"

namespace geartrain {

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

// The largest of the magnitudes, as the integer of its bits.
static inline int32_t largest_magnitude(const float* __restrict values, size_t size) {
    int32_t largest = 0;
    for (size_t d = 0; d < size; d++) largest = std::max(largest, load<int32_t>(values + d) & kMagnitude);
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

constexpr int32_t kHalfBias = 112 << 23, kLeastNormalHalf = 113 << 23;

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
    for (size_t d = 0; d < dim; d++) store(to + 2 * d, half_of(from[d] * scale));
}

// Whether all are halves that an encoder makes.
static inline bool from_halves(const uint8_t* __restrict from, float unscale, float* __restrict to, size_t dim) {
    int32_t largest = 0;
    for (size_t d = 0; d < dim; d++) {
        const uint16_t half = load<uint16_t>(from + 2 * d);
        largest = std::max(largest, half & 0x7FFF);
        to[d] = float_of(half) * unscale;
    }
    return largest <= kLargestHalf;
}

static inline bool encode_row(Fp16, const float* from, uint8_t* to, size_t dim) {
    const int32_t largest = largest_magnitude(from, dim);
    if (largest >= kInfinity) return false;
    const int32_t exponent = exponent_of(largest);
    to_halves(from, scale_of(exponent), to, dim);
    store(to + 2 * dim, static_cast<uint16_t>(exponent << 7));
    return true;
}

static inline bool decode_row(Fp16, const uint8_t* from, float* to, size_t dim) {
    const int32_t field = load<uint16_t>(from + 2 * dim), exponent = field >> 7;
    const bool fits = (field & 0x7F) == 0 && exponent >= kLeastExponent && exponent <= 2 * kBias;
    return fits && from_halves(from, unscale_of(exponent), to, dim);
}

// --- bf16 ------------------------------------------------------------------------------------------------------------

// The largest magnitude, as the integer of its bits.
static int32_t to_bf16(const float* __restrict from, uint8_t* __restrict to, size_t size) {
    int32_t largest = 0;
    for (size_t i = 0; i < size; i++) {
        const int32_t bits = load<int32_t>(from + i), magnitude = bits & kMagnitude;
        largest = std::max(largest, magnitude);
        const uint32_t rounded = (static_cast<uint32_t>(magnitude) + 0x7FFF + ((magnitude >> 16) & 1)) >> 16;
        store(to + 2 * i, static_cast<uint16_t>(std::min<uint32_t>(rounded, kLargestBf16) | ((bits >> 16) & 0x8000)));
    }
    return largest;
}

static int64_t encode_bf16(Matrix<const float> rows, Matrix<uint8_t> out) {
    const float* const from = rows.data();
    uint8_t* const to = out.data();
    size_t at = 0;
    int32_t largest = 0;
    const auto one_by_one = [&](size_t size) { largest = std::max(largest, to_bf16(from + at, to + 2 * at, size)); };
    if (eights::kAreHere) {
        constexpr size_t kPart = eights::kBf16Values;
        for (; at + kPart <= rows.size(); at += kPart) {
            if (__builtin_expect(!eights::encode_bf16(from + at, to + 2 * at), 0)) one_by_one(kPart);
        }
    }
    one_by_one(rows.size() - at);
    return largest < kInfinity ? kNone : first_not_finite(from, rows.shape(1));
}

static int64_t decode_bf16(Matrix<const uint8_t> encoded, Matrix<float> out) {
    const size_t size = out.size();
    const uint8_t* __restrict from = encoded.data();
    float* __restrict to = out.data();
    int32_t largest = 0;
    for (size_t i = 0; i < size; i++) {
        const uint32_t value = load<uint16_t>(from + 2 * i);
        largest = std::max(largest, static_cast<int32_t>(value & 0x7FFF));
        to[i] = bits_as<float>(value << 16);
    }
    return largest <= kLargestBf16 ? kNone : first_not_finite(to, out.shape(1));
}

// --- int8 ------------------------------------------------------------------------------------------------------------

struct Ends {
    float least, largest;
};

// Bits of floats as integers in the order of the floats, and back.
static inline int32_t flipped(int32_t bits) { return bits ^ ((bits >> 31) & kMagnitude); }

static inline Ends ends_of(const float* __restrict values, size_t size) {
    int32_t first = INT32_MAX, last = INT32_MIN;
    for (size_t d = 0; d < size; d++) {
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
    for (size_t d = 0; d < dim; d++) {
        to[d] = static_cast<uint8_t>(static_cast<int32_t>((from[d] * range.scale - range.low) * per_value + 0.5f));
    }
}

static inline void from_steps(const uint8_t* __restrict from, Range range, float* __restrict to, size_t dim) {
    const float step = (range.high - range.low) * (1 / kSteps);
    for (size_t d = 0; d < dim; d++) {
        const float scaled = static_cast<float>(static_cast<int32_t>(from[d])) * step + range.low;
        to[d] = (scaled < range.high ? scaled : range.high) * range.unscale;
    }
}

static inline bool encode_row(Int8, const float* from, uint8_t* to, size_t dim) {
    const Ends ends = ends_of(from, dim);
    const Range range = range_of(ends);
    if (!range.is_finite) return false;
    to_steps(from, range, to, dim);
    store(to + dim, ends);
    return true;
}

static inline bool decode_row(Int8, const uint8_t* from, float* to, size_t dim) {
    const Ends ends = load<Ends>(from + dim);
    const Range range = range_of(ends);
    if (!range.is_finite || ends.least > ends.largest) return false;
    from_steps(from, range, to, dim);
    return true;
}

// --- rows ------------------------------------------------------------------------------------------------------------

// The first row for which `one` says false, or -1. Where `several` is compiled it gets a stretch of rows and says
// whether all went well; the last stretch may overlap the one before.
template <size_t kFromSize, size_t kToSize, typename From, typename To, typename Several, typename One>
[[gnu::always_inline]] static inline int64_t each_row(Matrix<From> in, Matrix<To> out, Several several, One one) {
    const size_t num_rows = in.shape(0), from_size = in.shape(1), to_size = out.shape(1);
    const auto first_refused = [&](size_t row, size_t end) {
        for (; row < end; row++) {
            if (!one(in.data() + row * from_size, out.data() + row * to_size)) return static_cast<int64_t>(row);
        }
        return kNone;
    };
    const size_t dim = std::is_same_v<To, float> ? to_size : from_size;
    if (!eights::kAreHere || dim < eights::kLanes || num_rows < eights::kLanes) return first_refused(0, num_rows);
    const size_t stretch = eights::rows_of_a_stretch(dim);
    for (size_t next = 0; next < num_rows; next += stretch) {
        const size_t row = std::min(next, num_rows - eights::kLanes), count = std::min(num_rows - row, stretch);
        const eights::Rows<From, kFromSize> from{in.data() + row * from_size, count, from_size};
        const eights::Rows<To, kToSize> to{out.data() + row * to_size, count, to_size};
        if (__builtin_expect(!several(from, to), 0)) {
            const int64_t refused = first_refused(row, row + count);
            if (refused != kNone) return refused;
        }
    }
    return kNone;
}

template <typename Format>
static int64_t encode(Matrix<const float> rows, Matrix<uint8_t> out) {
    const size_t dim = rows.shape(1);
    return with_dim(dim, [&](auto constant) {
        constexpr size_t kDim = constant.value, kSize = kDim != 0 ? Format::bytes(kDim) : 0;
        return each_row<kDim, kSize>(
            rows, out,
            [](auto from, auto to) __attribute__((always_inline)) { return eights::encode(Format(), from, to); },
            [=](const float* from, uint8_t* to) { return encode_row(Format(), from, to, dim); });
    });
}

template <typename Format>
static int64_t decode(Matrix<const uint8_t> encoded, Matrix<float> out) {
    const size_t dim = out.shape(1);
    return with_dim(dim, [&](auto constant) {
        constexpr size_t kDim = constant.value, kSize = kDim != 0 ? Format::bytes(kDim) : 0;
        return each_row<kSize, kDim>(
            encoded, out,
            [](auto from, auto to) __attribute__((always_inline)) { return eights::decode(Format(), from, to); },
            [=](const uint8_t* from, float* to) { return decode_row(Format(), from, to, dim); });
    });
}

void bind_wire_codec(nb::module_& module) {
    module.def("encode_fp16", &encode<Fp16>, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_fp16", &decode<Fp16>, array_argument("encoded"), array_argument("out"), WithoutGil());
    module.def("encode_bf16", &encode_bf16, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_bf16", &decode_bf16, array_argument("encoded"), array_argument("out"), WithoutGil());
    module.def("encode_int8", &encode<Int8>, array_argument("rows"), array_argument("out"), WithoutGil());
    module.def("decode_int8", &decode<Int8>, array_argument("encoded"), array_argument("out"), WithoutGil());
}

}  // namespace geartrain
