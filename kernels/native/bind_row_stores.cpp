// All tables of a server in one call: a request or a window crosses into native code once, not once per table.
#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "row_store.h"

namespace geartrain {

// One worker's arrays for all tables, how many rows of each table they have, and the weight of the gradients.
using WorkerArrays = std::tuple<Vector<const uint64_t>, Matrix<const float>, Vector<const float>, Vector<const float>,
                                Vector<const int64_t>, float>;

static void pull_tables(const std::vector<const RowStore*>& stores, Vector<const uint64_t> keys,
                        Vector<const int64_t> counts, Matrix<float> out) {
    const nb::gil_scoped_release release;
    const uint64_t* key = keys.data();
    float* row = out.data();
    for (size_t table = 0; table < stores.size(); table++) {
        const size_t size = counts.data()[table];
        if (size > 0) stores[table]->pull(key, size, row);
        key += size;
        row += size * out.shape(1);
    }
}

// What a worker has for the tables that are still to come.
struct Cursor {
    const uint64_t* keys;
    const float *grads, *shows, *clicks;
    const int64_t* counts;
    float weight;

    Contribution take(size_t table, size_t dim) {
        const size_t size = counts[table];
        const Contribution taken{size, keys, grads, shows, clicks, weight};
        keys += size;
        grads += size * dim;
        shows += size;
        clicks += size;
        return taken;
    }
};

static void apply_tables(const std::vector<RowStore*>& stores, const std::vector<WorkerArrays>& workers,
                         const std::vector<CoefficientArray>& numbers, uint32_t version,
                         const std::vector<unsigned>& num_threads, Matrix<int64_t> lives) {
    std::vector<Cursor> cursors;
    for (const auto& [keys, grads, shows, clicks, counts, weight] : workers) {
        cursors.push_back({keys.data(), grads.data(), shows.data(), clicks.data(), counts.data(), weight});
    }
    const nb::gil_scoped_release release;
    std::vector<Contribution> contributions;
    for (size_t table = 0; table < stores.size(); table++) {
        RowStore& store = *stores[table];
        contributions.clear();
        for (Cursor& cursor : cursors) {
            const Contribution one = cursor.take(table, store.dim());
            if (one.num_keys > 0) contributions.push_back(one);
        }
        LifeCounts life{};
        if (!contributions.empty()) {
            life = store.apply(contributions, coefficients(numbers[table]), version, num_threads[table]);
        }
        int64_t* to = lives.data() + 3 * table;
        to[0] = static_cast<int64_t>(life.num_admitted);
        to[1] = static_cast<int64_t>(life.num_rejected);
        to[2] = static_cast<int64_t>(life.num_evicted);
    }
}

void bind_row_stores(nb::module_& module) {
    module.def("pull_tables", &pull_tables, nb::arg("stores"), array_argument("keys"), array_argument("counts"),
               array_argument("out"));
    module.def("apply_tables", &apply_tables, nb::arg("stores"), nb::arg("workers"), nb::arg("coefficients"),
               nb::arg("version"), nb::arg("num_threads"), array_argument("lives"));
}

}  // namespace geartrain
