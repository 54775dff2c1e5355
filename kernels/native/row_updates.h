// Updates of rows that were found: where they lie, and the optimizer's step with the room that it needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "floats.h"
#include "hottest_rows.h"
#include "initializer.h"
#include "merged_gradients.h"
#include "optimizers.h"
#include "row_arena.h"
#include "row_format.h"

namespace geartrain {

// Rows between a prefetch and its use.
constexpr size_t kUpdateAhead = 80;

// Where the rows of a table lie, with what is known at compile time folded in.
template <typename Kind, typename Format, size_t kDim>
class Rows {
public:
    explicit Rows(const RowArena& arena)
        : base_(arena.base()),
          value_bytes_(kDim != 0 ? kValueBytes : arena.value_bytes()),
          extra_bytes_(kDim != 0 ? kExtraBytes : arena.extra_bytes()) {}

    typename Format::Stored* values(size_t row) const {
        return reinterpret_cast<typename Format::Stored*>(RowArena::values_at(base_, row, value_bytes_, extra_bytes_));
    }
    float* state(size_t row) const {
        return reinterpret_cast<float*>(RowArena::extra_at(base_, row, value_bytes_, extra_bytes_));
    }
    template <int kForWriting>
    [[gnu::always_inline]] void prefetch_values(size_t row) const {
        if constexpr (fits_cache_lines(kValueBytes)) {
            prefetch_record<kForWriting, kValueBytes>(values(row));
        } else {
            prefetch_bytes<kForWriting>(values(row), value_bytes_);
        }
    }
    [[gnu::always_inline]] void prefetch_all(size_t row) const {
        prefetch_values<1>(row);
        if constexpr (fits_cache_lines(kExtraBytes)) {
            prefetch_record<1, kExtraBytes>(state(row));
        } else {
            prefetch_bytes<1>(state(row), extra_bytes_);
        }
    }

private:
    // 0 where the dim is known only at run time.
    static constexpr size_t kValueBytes = kDim * sizeof(typename Format::Stored);
    static constexpr size_t kExtraBytes =
        kDim != 0 ? Kind::state_width(kDim) * sizeof(float) + sizeof(Statistics) : 0;

    char* base_;
    size_t value_bytes_, extra_bytes_;
};

// The updates of a window, row by row. Rows are asked for some time before they are updated.
template <typename Kind, typename Format, size_t kDim>
class RowUpdates {
public:
    RowUpdates(const RowArena& arena, size_t dim, const Coefficients& coefficients, uint64_t seed, uint32_t version)
        : rows_(arena),
          dim_(kDim != 0 ? kDim : dim),
          coefficients_(coefficients),
          bounded_(coefficients.min_weight > -HUGE_VALF || coefficients.max_weight < HUGE_VALF),
          seed_(seed),
          version_(version),
          room_((1 + 2 * kDelay) * dim_) {}

    // The i-th row of a sequence will be `row`.
    [[gnu::always_inline]] void ask(size_t i, size_t row) {
        stored_[i % kRing] = rows_.values(row);
        states_[i % kRing] = rows_.state(row);
        rows_.prefetch_all(row);
    }

    // Room for the merged gradients of a row.
    float* sum_room() { return room_.data(); }

    // Finishes what is half done. To be called at the end, and before a row is updated a second time.
    void finish() {
        for (size_t n = num_begun_ < kDelay ? 0 : num_begun_ - kDelay; kHasHalves<Kind> && n < num_begun_; n++) {
            second_half(n % kDelay);
        }
        num_begun_ = 0;
    }

    // Updates the i-th row, which was asked for.
    [[gnu::always_inline]] void update(size_t i, uint64_t key, const MergedGradients::Sum& sum, HottestRows& hottest) {
        const size_t slot = next_slot();
        if constexpr (kIsLow) Format::widen(stored_[i % kRing], wide(slot), dim_);
        run(i, slot, key, sum, hottest);
    }

    // The same for a row that begins with its initial values; those are not rounded before they are updated.
    void bear(size_t i, uint64_t key, const Initializer& initializer, const MergedGradients::Sum& sum,
              HottestRows& hottest) {
        const size_t slot = next_slot();
        float* state = states_[i % kRing];
        std::fill_n(state, Kind::state_width(dim_), 0.0f);
        *statistics_of(state) = {};
        initializer.fill(key, values(stored_[i % kRing], slot), dim_);
        run(i, slot, key, sum, hottest);
    }

private:
    using Stored = typename Format::Stored;
    static constexpr bool kIsLow = !std::is_same_v<Format, Fp32>;
    static constexpr size_t kRing = 128;
    static constexpr size_t kDelay = 4;  // rows between the two halves of an update
    static_assert(kRing > kUpdateAhead, "rows that were asked for have places of their own");

    // A row whose update is half done, and what its first half has left for the second.
    struct Half {
        uint64_t key;
        Stored* stored;
        float* state;
        float number;
    };

    // Room for the next row: the one that was there is finished.
    [[gnu::always_inline]] size_t next_slot() {
        const size_t slot = num_begun_ % kDelay;
        if (kHasHalves<Kind> && num_begun_ >= kDelay) second_half(slot);
        num_begun_++;
        return slot;
    }

    [[gnu::always_inline]] void run(size_t i, size_t slot, uint64_t key, const MergedGradients::Sum& sum,
                                    HottestRows& hottest) {
        float* state = states_[i % kRing];
        if constexpr (kHasHalves<Kind>) {
            const float number = Kind::first_half(values(stored_[i % kRing], slot), state, mean(slot), sum.grads, dim_, coefficients_);
            halves_[slot] = {key, stored_[i % kRing], state, number};
        } else {
            Kind::update(values(stored_[i % kRing], slot), state, state + dim_, sum.grads, dim_, coefficients_);
            end(key, stored_[i % kRing], values(stored_[i % kRing], slot));
        }
        Statistics& statistics = *statistics_of(state);
        statistics.shows += sum.shows;
        statistics.clicks += sum.clicks;
        statistics.last_version = version_;
        hottest.offer(key, statistics.shows);
    }

    [[gnu::always_inline]] void second_half(size_t slot) {
        if constexpr (kHasHalves<Kind>) {
            const Half& half = halves_[slot];
            float* row = values(half.stored, slot);
            Kind::second_half(row, half.state, mean(slot), half.number, dim_, coefficients_);
            end(half.key, half.stored, row);
        }
    }

    [[gnu::always_inline]] void end([[maybe_unused]] uint64_t key, [[maybe_unused]] Stored* stored, float* values) {
        if (__builtin_expect(bounded_, 0)) clamp(values, dim_, coefficients_.min_weight, coefficients_.max_weight);
        if constexpr (kIsLow) round_row<Format>(values, stored, dim_, RoundingBits(key, seed_, version_));
    }

    float* mean(size_t slot) { return room_.data() + (1 + slot) * dim_; }
    float* wide(size_t slot) { return room_.data() + (1 + kDelay + slot) * dim_; }
    // Where the values of a row are updated: in place, or widened.
    float* values([[maybe_unused]] Stored* stored, [[maybe_unused]] size_t slot) {
        if constexpr (kIsLow) return wide(slot);
        if constexpr (!kIsLow) return stored;
    }
    Statistics* statistics_of(float* state) const {
        return reinterpret_cast<Statistics*>(state + Kind::state_width(dim_));
    }

    const Rows<Kind, Format, kDim> rows_;
    const size_t dim_;
    const Coefficients coefficients_;
    const bool bounded_;
    const uint64_t seed_;
    const uint32_t version_;
    std::vector<float> room_;  // merged gradients; for each row that is half done its mean gradient, and wide values
    Stored* stored_[kRing];
    float* states_[kRing];
    Half halves_[kDelay];
    size_t num_begun_ = 0;
};

}  // namespace geartrain
