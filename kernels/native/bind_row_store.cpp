#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "row_store.h"

namespace geartrain {

using ContributionArrays =
    std::tuple<Vector<const uint64_t>, Matrix<const float>, Vector<const float>, Vector<const float>, float>;

static void pull(const RowStore& store, Vector<const uint64_t> keys, Matrix<float> out) {
    store.pull(keys.data(), keys.shape(0), out.data());
}

static void lookup(const RowStore& store, Vector<const uint64_t> keys, Vector<int64_t> rows) {
    store.lookup(keys.data(), keys.shape(0), rows.data());
}

static std::tuple<size_t, size_t, size_t> apply(RowStore& store, const std::vector<ContributionArrays>& arrays,
                                                const CoefficientArray& numbers, uint32_t version,
                                                unsigned num_threads) {
    std::vector<Contribution> contributions;
    for (const auto& [keys, grads, shows, clicks, weight] : arrays) {
        contributions.push_back({keys.shape(0), keys.data(), grads.data(), shows.data(), clicks.data(), weight});
    }
    const nb::gil_scoped_release release;
    const LifeCounts counts = store.apply(contributions, coefficients(numbers), version, num_threads);
    return {counts.num_admitted, counts.num_rejected, counts.num_evicted};
}

static void rows_by_shard(const RowStore& store, Vector<int64_t> counts) {
    for (unsigned shard = 0; shard < kNumShards; shard++) counts.data()[shard] = store.num_rows(shard);
}

static std::vector<std::tuple<uint64_t, float>> hottest(const RowStore& store) {
    std::vector<std::tuple<uint64_t, float>> rows;
    for (const HottestRows::Row& row : store.hottest()) rows.emplace_back(row.key, row.shows);
    return rows;
}

static bool has_any(const RowStore& store, Vector<const uint64_t> keys) {
    return store.has_any(keys.data(), keys.shape(0));
}

// `values` are bytes here: NumPy arrays of the row dtype, seen as uint8.
static void load(RowStore& store, Vector<const uint64_t> keys, Matrix<const uint8_t> values,
                 Matrix<const float> states, Matrix<const float> statistics, Vector<const uint32_t> last_versions) {
    store.load({keys.shape(0), keys.data(), reinterpret_cast<const char*>(values.data()), states.data(),
                statistics.data(), last_versions.data()});
}

static void load_sketches(RowStore& store, unsigned first, Matrix<const uint8_t> sketches,
                          Vector<const uint64_t> totals) {
    for (unsigned i = 0; i < totals.shape(0); i++) {
        store.load_sketch(first + i, sketches.data() + i * sketches.shape(1), totals.data()[i]);
    }
}

static void collect_cut(RowStore& store, unsigned first, Vector<int64_t> counts, Vector<int64_t> deleted_counts) {
    store.collect_cut(first, first + static_cast<unsigned>(counts.shape(0)), counts.data(), deleted_counts.data());
}

static void write_cut(RowStore& store, unsigned first, Vector<uint64_t> keys, Matrix<uint8_t> values,
                      Matrix<float> states, Matrix<float> statistics, Vector<uint32_t> last_versions,
                      Vector<uint64_t> deleted, Matrix<uint8_t> sketches, Vector<uint64_t> sketch_totals) {
    store.write_cut(first, first + static_cast<unsigned>(sketch_totals.shape(0)),
                    {keys.shape(0), keys.data(), reinterpret_cast<char*>(values.data()), states.data(),
                     statistics.data(), last_versions.data()},
                    deleted.data(), sketches.data(), sketch_totals.data());
}

static void bind_life(nb::module_& module) {
    nb::class_<RowLife> life(module, "RowLife");
    nb::enum_<Admission>(life, "Admission")
        .value("always", Admission::kAlways)
        .value("probability", Admission::kProbability)
        .value("count", Admission::kCount);
    nb::enum_<Expiry>(life, "Expiry")
        .value("never", Expiry::kNever)
        .value("unseen", Expiry::kUnseen)
        .value("score", Expiry::kScore);
    nb::enum_<Eviction>(life, "Eviction").value("lru", Eviction::kLru).value("lfu", Eviction::kLfu);
    life.def(nb::init<uint64_t, Admission, double, unsigned, size_t, Expiry, float, float, float, float, uint64_t,
                      Eviction>(),
             nb::arg("seed"), nb::arg("admission"), nb::arg("probability"), nb::arg("min_shows"),
             nb::arg("sketch_bytes"), nb::arg("expiry"), nb::arg("decay"), nb::arg("show_weight"),
             nb::arg("click_weight"), nb::arg("min_score"), nb::arg("max_rows"), nb::arg("eviction"));
}

static void bind_cuts(nb::class_<RowStore>& store) {
    store.def_prop_ro("delta_base", &RowStore::delta_base)
        .def_prop_ro("has_cut", &RowStore::has_cut)
        .def_prop_ro("cut_next_shard", &RowStore::cut_next_shard)
        .def("begin_cut", &RowStore::begin_cut, nb::arg("version"), nb::arg("base").none(), WithoutGil())
        .def("end_cut", &RowStore::end_cut, WithoutGil())
        .def("collect_cut", &collect_cut, nb::arg("first"), array_argument("counts"), array_argument("deleted_counts"),
             WithoutGil())
        .def("write_cut", &write_cut, nb::arg("first"), array_argument("keys"), array_argument("values"),
             array_argument("states"), array_argument("statistics"), array_argument("last_versions"),
             array_argument("deleted"), array_argument("sketches"), array_argument("sketch_totals"), WithoutGil());
}

void bind_row_store(nb::module_& module) {
    bind_life(module);
    nb::class_<RowStore> store(module, "RowStore");
    nb::enum_<OptimizerKind>(store, "Kind")
        .value("sgd", OptimizerKind::kSgd)
        .value("adagrad", OptimizerKind::kAdagrad)
        .value("rowwise_adagrad", OptimizerKind::kRowwiseAdagrad)
        .value("adam", OptimizerKind::kAdam)
        .value("rowwise_adam", OptimizerKind::kRowwiseAdam)
        .value("ftrl", OptimizerKind::kFtrl);
    nb::enum_<RowDtype>(store, "Dtype")
        .value("fp32", RowDtype::kFp32)
        .value("fp16", RowDtype::kFp16)
        .value("bf16", RowDtype::kBf16);
    store
        .def(nb::init<size_t, OptimizerKind, RowDtype, const Initializer&, const RowLife&>(), nb::arg("dim"),
             nb::arg("kind"), nb::arg("dtype"), nb::arg("initializer"), nb::arg("life"))
        .def_prop_ro("state_width", &RowStore::state_width)
        .def_prop_ro("num_rows", nb::overload_cast<>(&RowStore::num_rows, nb::const_))
        .def_prop_ro("memory_bytes", &RowStore::memory_bytes)
        .def_prop_ro("longest_growth_ns", &RowStore::longest_growth_ns)
        .def_prop_ro("sketch_bytes", &RowStore::sketch_bytes)
        .def("rows_by_shard", &rows_by_shard, array_argument("counts"))
        .def("hottest", &hottest)
        .def("pull", &pull, array_argument("keys"), array_argument("out"), WithoutGil())
        .def("lookup", &lookup, array_argument("keys"), array_argument("rows"), WithoutGil())
        .def("apply", &apply, nb::arg("contributions"), nb::arg("coefficients"), nb::arg("version"),
             nb::arg("num_threads"))
        .def("expire", &RowStore::expire, nb::arg("first"), nb::arg("last"), nb::arg("unseen_before"), WithoutGil())
        .def("prepare_growth", &RowStore::prepare_growth, nb::arg("num_rows"), WithoutGil())
        .def("has_any", &has_any, array_argument("keys"), WithoutGil())
        .def("load", &load, array_argument("keys"), array_argument("values"), array_argument("states"),
             array_argument("statistics"), array_argument("last_versions"), WithoutGil())
        .def("load_sketches", &load_sketches, nb::arg("first"), array_argument("sketches"), array_argument("totals"),
             WithoutGil());
    bind_cuts(store);
}

}  // namespace geartrain
