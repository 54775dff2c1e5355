// A table's rows on one server, found by key: what is read and updated in them, and how they come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "admission_sketch.h"
#include "cut.h"
#include "hottest_rows.h"
#include "initializer.h"
#include "merged_gradients.h"
#include "optimizers.h"
#include "row_arena.h"
#include "row_life.h"
#include "shard_index.h"

namespace geartrain {

enum class OptimizerKind { kSgd, kAdagrad, kRowwiseAdagrad, kAdam, kRowwiseAdam, kFtrl };
enum class RowDtype { kFp32, kFp16, kBf16 };

struct LifeCounts {
    size_t num_admitted, num_rejected, num_evicted;
};

// Any number of threads may call const functions; all others are for one thread, alone, but prepare_growth, beside
// which const functions may run.
class RowStore {
public:
    // Plain arrays of rows. `values` are of the store's row dtype, `statistics` two floats of each row.
    template <typename Key, typename Byte, typename Float, typename Version>
    struct RecordArrays {
        size_t num_rows;
        Key* keys;
        Byte* values;
        Float* states;
        Float* statistics;
        Version* last_versions;
    };
    using Records = RecordArrays<const uint64_t, const char, const float, const uint32_t>;
    using RecordBuffers = RecordArrays<uint64_t, char, float, uint32_t>;

    RowStore(size_t dim, OptimizerKind kind, RowDtype dtype, const Initializer& initializer, const RowLife& life);

    size_t dim() const { return dim_; }
    size_t state_width() const { return state_width_; }
    size_t num_rows() const { return num_rows_; }
    uint32_t num_rows(unsigned shard) const { return index_.num_keys(shard); }
    size_t memory_bytes() const {
        return index_.memory_bytes() + arena_.memory_bytes() + sketch_.memory_bytes() + deletions_.memory_bytes() +
               (cut_ != nullptr ? cut_->memory_bytes() : 0);
    }
    uint64_t longest_growth_ns() const { return longest_growth_ns_; }
    std::vector<HottestRows::Row> hottest() const { return hottest_.sorted(); }

    void pull(const uint64_t* keys, size_t num_keys, float* out) const;

    // The number of each key's row, -1 for none.
    void lookup(const uint64_t* keys, size_t num_keys, int64_t* rows) const;

    // One window: every key's row is updated once. The keys of one contribution are all different.
    LifeCounts apply(const std::vector<Contribution>& contributions, const Coefficients& coefficients,
                     uint32_t version, unsigned num_threads);

    // Sweeps shards [first, last); returns how many rows left.
    size_t expire(unsigned first, unsigned last, uint32_t unseen_before);

    void prepare_growth(size_t num_rows);

    // Whether any of the keys has a row.
    bool has_any(const uint64_t* keys, size_t num_keys) const;

    // Adds rows; none of the keys may have one.
    void load(const Records& records);

    size_t sketch_bytes() const { return life_.admission == Admission::kCount ? sketch_.shard_bytes() : 0; }
    void load_sketch(unsigned shard, const uint8_t* counters, uint64_t total) { sketch_.load(shard, counters, total); }

    // The version of the last cut of all rows since which deletions are known.
    std::optional<uint32_t> delta_base() const { return deletions_.base(); }
    void begin_cut(uint32_t version, std::optional<uint32_t> base);
    void end_cut() { cut_.reset(); }
    bool has_cut() const { return cut_ != nullptr; }
    unsigned cut_next_shard() const { return cut_->next_shard(); }

    // Shards [first, last) of the cut: counts[i] rows and deleted_counts[i] keys in shard first + i; then the same
    // written to arrays of that size. To be called in turns, the shards in ascending order.
    void collect_cut(unsigned first, unsigned last, int64_t* counts, int64_t* deleted_counts);
    void write_cut(unsigned first, unsigned last, const RecordBuffers& records, uint64_t* deleted, uint8_t* sketches,
                   uint64_t* sketch_totals);

private:
    struct Newborn {
        uint64_t key, hash;
        size_t number;  // in the merged gradients
    };
    // What is found while a part of a window is updated; no cache line of it is another thread's.
    struct alignas(64) Part {
        std::vector<size_t> missing;
        HottestRows hottest;  // of those above the floor of all
        KeptRows kept;
        std::exception_ptr failure;
    };

    template <typename Kind, typename Format, size_t kDim>
    void update_part(const MergedGradients& merged, size_t begin, size_t size, const Coefficients& coefficients,
                     uint32_t version, Part& part);
    void keep_for_cut(const MergedGradients& merged, size_t begin, size_t size, const uint32_t* rows,
                      KeptRows& kept) const;
    template <typename Kind, typename Format, size_t kDim>
    void bear(const MergedGradients& merged, const std::vector<Newborn>& newborns, const Coefficients& coefficients,
              uint32_t version);
    template <typename Kind, typename Format, size_t kDim>
    void pull_as(const uint64_t* keys, size_t num_keys, float* out) const;

    using Pull = void (RowStore::*)(const uint64_t*, size_t, float*) const;
    using UpdatePart = void (RowStore::*)(const MergedGradients&, size_t, size_t, const Coefficients&, uint32_t,
                                          Part&);
    using Bear = void (RowStore::*)(const MergedGradients&, const std::vector<Newborn>&, const Coefficients&, uint32_t);
    template <typename Kind, typename Format, size_t kDim>
    void use();
    template <typename Kind>
    void choose(RowDtype dtype);

    std::vector<Newborn> admit(const MergedGradients& merged, const std::vector<size_t>& missing, uint32_t version);
    void count_shows(const MergedGradients& merged, const std::vector<Newborn>& candidates);
    void halve_sketches(const std::vector<Newborn>& candidates);
    size_t make_room(std::vector<Newborn>& newborns, uint32_t version);
    void drop_surplus(std::vector<Newborn>& newborns, const std::vector<uint32_t>& num_new) const;
    void evict(unsigned shard, size_t num_rows, uint32_t version);
    void remove(unsigned shard, uint64_t key, uint32_t row);

    Statistics* statistics(uint32_t row) const {
        return reinterpret_cast<Statistics*>(arena_.state(row) + state_width_);
    }

    size_t dim_;
    Initializer initializer_;
    RowLife life_;
    size_t state_width_;
    size_t num_rows_ = 0;
    ShardIndex index_;
    RowArena arena_;
    AdmissionSketch sketch_;
    HottestRows hottest_;
    DeletionLog deletions_;
    std::unique_ptr<Cut> cut_;
    std::vector<CutRow> cut_rows_;      // between collect_cut and write_cut
    std::vector<uint64_t> cut_deleted_;
    uint64_t longest_growth_ns_ = 0;
    Pull pull_ = nullptr;
    UpdatePart update_part_ = nullptr;
    Bear bear_ = nullptr;
};

}  // namespace geartrain
