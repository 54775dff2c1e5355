// The rows of a table, found by number: they never move, and numbers of rows that left are used again.
//
// Sixteen rows are a block: first their values, side by side, then what goes with each of them. A pull so touches one
// cache line less than with both in one record, and an update none more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "region.h"

namespace geartrain {

// What is kept of a row beside its values: `state_width` floats of optimizer state, then these.
struct Statistics {
    float shows, clicks;
    uint32_t last_version;
};

class RowArena {
public:
    RowArena(size_t value_bytes, size_t state_width)
        : value_bytes_(value_bytes),
          extra_bytes_(state_width * sizeof(float) + sizeof(Statistics)),
          region_(SIZE_MAX) {}

    // Where the values of a row lie, and where its state and statistics, in an arena that begins at `base`. `kUnit`
    // divides both sizes: what the compiler knows of them makes the computation shorter.
    template <size_t kUnit = 1>
    static char* values_at(char* base, size_t row, size_t value_bytes, size_t extra_bytes) {
        return base + (row * (value_bytes / kUnit) + first_of_block(row) * (extra_bytes / kUnit)) * kUnit;
    }
    template <size_t kUnit = 1>
    static char* extra_at(char* base, size_t row, size_t value_bytes, size_t extra_bytes) {
        const size_t block_values = (first_of_block(row) + kBlockRows) * (value_bytes / kUnit);
        return base + (block_values + row * (extra_bytes / kUnit)) * kUnit;
    }

    char* base() const { return region_.data(); }
    char* values(uint32_t row) const { return values_at(base(), row, value_bytes_, extra_bytes_); }
    float* state(uint32_t row) const {
        return reinterpret_cast<float*>(extra_at(base(), row, value_bytes_, extra_bytes_));
    }

    size_t value_bytes() const { return value_bytes_; }
    size_t extra_bytes() const { return extra_bytes_; }
    size_t memory_bytes() const {
        return (num_taken_ + kBlockRows - 1) / kBlockRows * block_bytes() + free_.capacity() * sizeof(uint32_t);
    }

    // The number of a row that is not in use; its values and state are whatever they were.
    uint32_t take() {
        if (!free_.empty()) {
            const uint32_t row = free_.back();
            free_.pop_back();
            return row;
        }
        if (num_taken_ >= UINT32_MAX) throw std::length_error("a table has at most 2**32 - 1 rows on one server");
        if (num_taken_ % kBlockRows == 0) commit((num_taken_ / kBlockRows + 1) * block_bytes());
        return static_cast<uint32_t>(num_taken_++);
    }

    void give_back(uint32_t row) { free_.push_back(row); }

    // Has the memory of `num_rows` more rows at hand. Reads of rows in use may go on.
    void prepare_growth(size_t num_rows) {
        if (num_rows <= free_.size()) return;
        const size_t begin = std::max(prepared_, (num_taken_ + kBlockRows - 1) / kBlockRows * block_bytes());
        const size_t needed = ((num_taken_ + num_rows - free_.size()) / kBlockRows + 1) * block_bytes();
        // Small pages come fast enough when they are touched, and huge ones come whole.
        if (needed <= begin || needed <= kHugePage) return;
        const size_t end = (needed + kHugePage - 1) / kHugePage * kHugePage;
        commit(end);
        region_.populate(begin, end);
        prepared_ = end;
    }

private:
    static constexpr size_t kBlockRows = 16;
    static constexpr size_t kLargestStep = size_t{64} << 20;

    static size_t first_of_block(size_t row) { return row / kBlockRows * kBlockRows; }
    size_t block_bytes() const { return kBlockRows * (value_bytes_ + extra_bytes_); }

    void commit(size_t bytes) {
        if (bytes <= committed_) return;
        const size_t step = std::clamp(committed_, kHugePage, kLargestStep);
        const size_t target = (std::max(bytes, committed_ + step) + kHugePage - 1) / kHugePage * kHugePage;
        region_.commit(committed_, target);
        // A small table must not cost a huge page: the first one is asked for when the rows outgrow it.
        if (committed_ == 0) region_.use_huge_pages(0, kHugePage, false);
        if (target > kHugePage) region_.use_huge_pages(committed_ == 0 ? kHugePage : 0, target, true);
        committed_ = target;
    }

    size_t value_bytes_;
    size_t extra_bytes_;
    Region region_;
    std::vector<uint32_t> free_;
    size_t num_taken_ = 0;  // rows in use, and those given back
    size_t committed_ = 0;
    size_t prepared_ = 0;
};

}  // namespace geartrain
