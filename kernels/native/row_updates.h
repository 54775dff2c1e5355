// Updates of rows that were found: where they lie, and the optimizer's step with the room that it needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "floats.h"
#include "hottest_rows.h"
#include "initializer.h"
#include "merged_gradients.h"
#include "optimizers.h"
#include "row_arena.h"
#include "row_format.h"

namespace geartrain {

// Rows between a prefetch and its use.
constexpr size_t kUpdateAhead = 64;

// Where the rows of a table lie, with what is known at compile time folded in.
template <typename Kind, typename Format, size_t kDim>
class Rows {
public:
    explicit Rows(const RowArena& arena)
        : base_(arena.base()),
          value_bytes_(arena.value_bytes()),
          extra_bytes_(arena.extra_bytes()) {}

    typename Format::Stored* values(size_t row) const {
        return reinterpret_cast<typename Format::Stored*>(
            RowArena::values_at<kUnit>(base_, row, value_bytes(), extra_bytes()));
    }
    float* state(size_t row) const {
        return reinterpret_cast<float*>(RowArena::extra_at<kUnit>(base_, row, value_bytes(), extra_bytes()));
    }
    template <int kForWriting>
    [[gnu::always_inline]] void prefetch_values(size_t row) const {
        if constexpr (fits_cache_lines(kValueBytes)) {
            prefetch_record<kForWriting, kValueBytes>(values(row));
        } else {
            prefetch_bytes<kForWriting>(values(row), value_bytes());
        }
    }
    [[gnu::always_inline]] void prefetch_all(size_t row) const {
        prefetch_values<1>(row);
        if constexpr (fits_cache_lines(kExtraBytes)) {
            prefetch_record<1, kExtraBytes>(state(row));
        } else {
            prefetch_bytes<1>(state(row), extra_bytes());
        }
    }

private:
    // 0 where the dim is known only at run time.
    static constexpr size_t kValueBytes = kDim * sizeof(typename Format::Stored);
    static constexpr size_t kExtraBytes =
        kDim != 0 ? Kind::state_width(kDim) * sizeof(float) + sizeof(Statistics) : 0;
    static constexpr size_t kUnit = kDim != 0 ? std::gcd(kValueBytes, kExtraBytes) : 1;

    size_t value_bytes() const { return kDim != 0 ? kValueBytes : value_bytes_; }
    size_t extra_bytes() const { return kDim != 0 ? kExtraBytes : extra_bytes_; }

    char* base_;
    size_t value_bytes_, extra_bytes_;
};

// The updates of a window, row by row.
//
// A prefetch that misses the TLB keeps the processor from retiring what follows it until the page is found. How many of
// them overlap so depends on how few instructions an update has: nothing is kept from one row to the next, and where a
// row lies is computed again rather than remembered.
template <typename Kind, typename Format, size_t kDim>
class RowUpdates {
public:
    static constexpr size_t kRoomRows = 3;

    // `room` has kRoomRows * dim floats; the first row is for the merged gradients, which the caller may put there.
    RowUpdates(const RowArena& arena, size_t dim, const Coefficients& coefficients, uint64_t seed, uint32_t version,
               float* room)
        : rows_(arena),
          dim_(dim),
          coefficients_(coefficients),
          bounded_(coefficients.min_weight > -HUGE_VALF || coefficients.max_weight < HUGE_VALF),
          seed_(seed),
          version_(version),
          room_(room) {}

    [[gnu::always_inline]] void prefetch(size_t row) const { rows_.prefetch_all(row); }

    // `kWhole`: a window is a whole step for every row (most_windows is 1), which needs fewer instructions.
    template <bool kWhole>
    [[gnu::always_inline]] void update(size_t row, uint64_t key, const MergedGradients::Sum& sum,
                                       HottestRows& hottest) const {
        Stored* stored = rows_.values(row);
        float* state = rows_.state(row);
        if constexpr (kIsLow) Format::widen(stored, wide(), dim());
        if constexpr (kWhole) {
            run(stored, state, key, sum, coefficients_, hottest);
        } else {
            run(stored, state, key, sum, coefficients_.over(windows_since(statistics_of(state)->last_version)), hottest);
        }
    }

    // The same for a row that begins with its initial values; those are not rounded before they are updated.
    void bear(size_t row, uint64_t key, const Initializer& initializer, const MergedGradients::Sum& sum,
              HottestRows& hottest) const {
        Stored* stored = rows_.values(row);
        float* state = rows_.state(row);
        std::fill_n(state, Kind::state_width(dim()), 0.0f);
        *statistics_of(state) = {};
        initializer.fill(key, values(stored), dim());
        run(stored, state, key, sum, coefficients_.over(coefficients_.most_windows), hottest);
    }

private:
    using Stored = typename Format::Stored;
    static constexpr bool kIsLow = !std::is_same_v<Format, Fp32>;

    // How many windows the update of a row stands for that was last updated at `last_version`: in this very version where
    // a contribution has its key twice.
    [[gnu::always_inline]] float windows_since(uint32_t last_version) const {
        const int64_t windows = static_cast<int64_t>(version_) - last_version;
        return std::min(coefficients_.most_windows, static_cast<float>(std::max<int64_t>(windows, 1)));
    }

    [[gnu::always_inline]] void run(Stored* stored, float* state, uint64_t key, const MergedGradients::Sum& sum,
                                    const Coefficients& c, HottestRows& hottest) const {
        float* row = values(stored);
        if constexpr (!kNeedsMean<Kind>) {
            Kind::update(row, state, state + dim(), sum.grads, dim(), c);
        } else if constexpr (kDim != 0) {
            float mean[kDim];  // stays in registers
            Kind::update(row, state, mean, sum.grads, kDim, c);
        } else {
            Kind::update(row, state, room_ + dim(), sum.grads, dim(), c);
        }
        if (__builtin_expect(bounded_, 0)) clamp(row, dim(), c.min_weight, c.max_weight);
        if constexpr (kIsLow) round_row<Format>(row, stored, dim(), RoundingBits(key, seed_, version_));
        Statistics& statistics = *statistics_of(state);
        statistics.shows += sum.shows;
        statistics.clicks += sum.clicks;
        statistics.last_version = version_;
        hottest.offer(key, statistics.shows);
    }

    size_t dim() const { return kDim != 0 ? kDim : dim_; }
    float* wide() const { return room_ + 2 * dim(); }
    // Where the values of a row are updated: in place, or widened.
    float* values([[maybe_unused]] Stored* stored) const {
        if constexpr (kIsLow) return wide();
        if constexpr (!kIsLow) return stored;
    }
    Statistics* statistics_of(float* state) const {
        return reinterpret_cast<Statistics*>(state + Kind::state_width(dim()));
    }

    const Rows<Kind, Format, kDim> rows_;
    const size_t dim_;
    const Coefficients coefficients_;
    const bool bounded_;
    const uint64_t seed_;
    const uint32_t version_;
    float* const room_;  // merged gradients, their mean, and wide values
};

}  // namespace geartrain
