// Deduplication, the lookup plan of a batch, and the range checks that go with them.
#include <algorithm>
#include <vector>

#include "arrays.h"
#include "distinct_keys.h"
#include "hashing.h"

namespace geartrain {

static size_t deduplicate(Vector<const uint64_t> keys, Vector<uint64_t> unique, Vector<int32_t> inverse) {
    DistinctKeys& distinct = thread_distinct_keys();
    distinct.reset(keys.shape(0), unique.data());
    int32_t* to = inverse.data();
    distinct.add(keys.data(), keys.shape(0), [=](size_t i, uint32_t number, bool, uint64_t) {
        to[i] = static_cast<int32_t>(number);
    });
    return distinct.size();
}

// The first place of a key that its range has before it already; -1 when there is none. Range r has counts[r] keys.
static int64_t first_repeated(Vector<const uint64_t> keys, Vector<const int64_t> counts) {
    thread_local std::vector<uint64_t> room;
    room.resize(std::max(keys.shape(0), room.size()));
    DistinctKeys& distinct = thread_distinct_keys();
    int64_t repeated = -1;
    size_t begin = 0;
    for (size_t range = 0; range < counts.shape(0); range++) {
        const size_t end = begin + counts.data()[range];
        distinct.reset(end - begin, room.data());
        distinct.add(keys.data() + begin, end - begin, [&](size_t i, uint32_t, bool is_new, uint64_t) {
            if (__builtin_expect(!is_new, 0) && repeated < 0) repeated = static_cast<int64_t>(begin + i);
        });
        if (repeated >= 0) return repeated;
        begin = end;
    }
    return -1;
}

// What a plan needs between its two sweeps, kept from call to call.
struct PlanScratch {
    std::vector<uint64_t> unique;
    std::vector<uint32_t> cell;  // server * num_tables + table of each unique key
    std::vector<int32_t> position;
};

static size_t plan_lookup(Vector<const uint64_t> keys, Vector<const int64_t> slot_starts,
                          Vector<const int64_t> slot_tables, Vector<const int64_t> shard_owner,
                          Vector<uint64_t> unique_keys, Matrix<int64_t> counts, Vector<int32_t> inverse) {
    thread_local PlanScratch scratch;
    const size_t num_keys = keys.shape(0), num_slots = slot_tables.shape(0), num_tables = counts.shape(1);
    scratch.unique.resize(std::max(num_keys, scratch.unique.size()));
    scratch.cell.resize(scratch.unique.size());
    scratch.position.resize(scratch.unique.size());
    int64_t* count = counts.data();
    std::fill_n(count, counts.size(), 0);
    uint32_t* const cell = scratch.cell.data();
    const int64_t* const owners = shard_owner.data();

    // First sweep: number the keys table by table, in slot order within each.
    DistinctKeys& distinct = thread_distinct_keys();
    size_t num_unique = 0;
    for (size_t table = 0; table < num_tables; table++) {
        size_t of_table = 0;
        for (size_t slot = 0; slot < num_slots; slot++) {
            if (slot_tables.data()[slot] != static_cast<int64_t>(table)) continue;
            of_table += slot_starts.data()[slot + 1] - slot_starts.data()[slot];
        }
        if (of_table == 0) continue;
        const size_t base = num_unique;
        distinct.reset(of_table, scratch.unique.data() + base);
        for (size_t slot = 0; slot < num_slots; slot++) {
            if (slot_tables.data()[slot] != static_cast<int64_t>(table)) continue;
            const size_t start = slot_starts.data()[slot];
            int32_t* to = inverse.data() + start;
            distinct.add(keys.data() + start, slot_starts.data()[slot + 1] - start,
                         [=](size_t i, uint32_t number, bool is_new, uint64_t hash) {
                             to[i] = static_cast<int32_t>(base + number);
                             if (!is_new) return;
                             const size_t cell_number = owners[hash >> kShardShift] * num_tables + table;
                             cell[base + number] = static_cast<uint32_t>(cell_number);
                             count[cell_number]++;
                         });
        }
        num_unique += distinct.size();
    }

    // Second sweep: sort the unique keys by (server, table), stably, and send the inverse after them.
    std::vector<size_t> next(counts.size());
    for (size_t cell = 1; cell < counts.size(); cell++) next[cell] = next[cell - 1] + count[cell - 1];
    for (size_t i = 0; i < num_unique; i++) {
        const size_t position = next[scratch.cell[i]]++;
        scratch.position[i] = static_cast<int32_t>(position);
        unique_keys.data()[position] = scratch.unique[i];
    }
    for (size_t i = 0; i < num_keys; i++) inverse.data()[i] = scratch.position[inverse.data()[i]];
    return num_unique;
}

// The first place where offsets fall, or do not end at `stop`; -1 when there is none.
static int64_t first_fall(Vector<const int64_t> offsets, int64_t stop) {
    const int64_t* offset = offsets.data();
    const int64_t last = static_cast<int64_t>(offsets.shape(0)) - 1;
    bool falls = false;
    for (int64_t i = 0; i < last; i++) falls |= offset[i + 1] < offset[i];
    if (falls) {
        for (int64_t i = 0; i < last; i++) {
            if (offset[i + 1] < offset[i]) return i + 1;
        }
    }
    return offset[last] == stop ? -1 : last;
}

// The first place of a value outside [0, stop); -1 when there is none.
static int64_t first_outside(Vector<const int64_t> values, uint64_t stop) {
    const int64_t* value = values.data();
    const size_t size = values.shape(0);
    bool outside = false;
    for (size_t i = 0; i < size; i++) outside |= static_cast<uint64_t>(value[i]) >= stop;
    for (size_t i = 0; outside && i < size; i++) {
        if (static_cast<uint64_t>(value[i]) >= stop) return static_cast<int64_t>(i);
    }
    return -1;
}

void bind_lookup(nb::module_& module) {
    module.def("deduplicate", &deduplicate, array_argument("keys"), array_argument("unique"),
               array_argument("inverse"), WithoutGil());
    module.def("first_repeated", &first_repeated, array_argument("keys"), array_argument("counts"), WithoutGil());
    module.def("plan_lookup", &plan_lookup, array_argument("keys"), array_argument("slot_starts"),
               array_argument("slot_tables"), array_argument("shard_owner"), array_argument("unique_keys"),
               array_argument("counts"), array_argument("inverse"), WithoutGil());
    module.def("first_fall", &first_fall, array_argument("offsets"), nb::arg("stop"), WithoutGil());
    module.def("first_outside", &first_outside, array_argument("values"), nb::arg("stop"), WithoutGil());
}

}  // namespace geartrain
