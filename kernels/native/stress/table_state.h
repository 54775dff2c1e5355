// Rows of a table as plain arrays, as a cut gives them out, to be compared bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "row_store.h"

namespace geartrain::stress {

struct TableState {
    TableState() { states.reserve(1), deleted.reserve(1), sketches.reserve(1); }  // not null, even where nothing is

    std::vector<uint64_t> keys, deleted, totals;
    std::vector<char> values;
    std::vector<float> states, statistics;
    std::vector<uint32_t> last_versions;
    std::vector<int64_t> counts, deleted_counts;
    std::vector<uint8_t> sketches;

    // Adds shards [first, last) of the store's cut.
    void read(RowStore& store, unsigned first, unsigned last, size_t value_bytes) {
        const size_t num_shards = last - first, shards_before = counts.size(), rows_before = keys.size();
        const size_t deleted_before = deleted.size(), sketches_before = sketches.size();
        counts.resize(shards_before + num_shards);
        deleted_counts.resize(shards_before + num_shards);
        store.collect_cut(first, last, counts.data() + shards_before, deleted_counts.data() + shards_before);
        size_t num_rows = 0, num_deleted = 0;
        for (size_t i = shards_before; i < counts.size(); i++) {
            num_rows += static_cast<size_t>(counts[i]);
            num_deleted += static_cast<size_t>(deleted_counts[i]);
        }
        keys.resize(rows_before + num_rows);
        values.resize(keys.size() * value_bytes);
        states.resize(keys.size() * store.state_width());
        statistics.resize(keys.size() * 2);
        last_versions.resize(keys.size());
        deleted.resize(deleted_before + num_deleted);
        sketches.resize(sketches_before + num_shards * store.sketch_bytes());
        totals.resize(shards_before + num_shards);
        const RowStore::RecordBuffers rows{num_rows,
                                           keys.data() + rows_before,
                                           values.data() + rows_before * value_bytes,
                                           states.data() + rows_before * store.state_width(),
                                           statistics.data() + rows_before * 2,
                                           last_versions.data() + rows_before};
        store.write_cut(first, last, rows, deleted.data() + deleted_before, sketches.data() + sketches_before,
                        totals.data() + shards_before);
    }

    RowStore::Records records() const {
        return {keys.size(), keys.data(), values.data(), states.data(), statistics.data(), last_versions.data()};
    }

    // Everything that is known of each row, by its key.
    std::map<uint64_t, std::string> by_key(size_t value_bytes, size_t state_width) const {
        std::map<uint64_t, std::string> rows;
        for (size_t i = 0; i < keys.size(); i++) {
            std::string row(values.data() + i * value_bytes, value_bytes);
            append(row, states.data() + i * state_width, state_width);
            append(row, statistics.data() + 2 * i, 2);
            append(row, last_versions.data() + i, 1);
            rows.emplace(keys[i], std::move(row));
        }
        return rows;
    }

private:
    template <typename T>
    static void append(std::string& row, const T* from, size_t size) {
        row.append(reinterpret_cast<const char*>(from), size * sizeof(T));
    }
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The first array in which two states differ, or nullptr.
inline const char* difference(const TableState& a, const TableState& b) {
    if (!same_bits(a.counts, b.counts)) return "counts";
    if (!same_bits(a.keys, b.keys)) return "keys";
    if (!same_bits(a.last_versions, b.last_versions)) return "last versions";
    if (!same_bits(a.statistics, b.statistics)) return "statistics";
    if (!same_bits(a.values, b.values)) return "values";
    if (!same_bits(a.states, b.states)) return "states";
    if (!same_bits(a.totals, b.totals)) return "sketch totals";
    if (!same_bits(a.sketches, b.sketches)) return "sketches";
    return nullptr;
}

}  // namespace geartrain::stress
