#include <nanobind/stl/array.h>

#include "arrays.h"
#include "row_store.h"

namespace geartrain {

static void pull(const RowStore& store, Vector<const uint64_t> keys, Matrix<float> out) {
    store.pull(keys.data(), keys.shape(0), out.data());
}

static size_t apply(RowStore& store, Vector<const uint64_t> keys, Matrix<const float> grads, Vector<const float> shows,
                    Vector<const float> clicks, const CoefficientArray& numbers, uint32_t version) {
    return store.apply({keys.shape(0), keys.data(), grads.data(), shows.data(), clicks.data()}, coefficients(numbers),
                       version);
}

static void write_records(const RowStore& store, Vector<uint64_t> keys, Matrix<float> values, Matrix<float> states,
                          Matrix<float> statistics, Vector<uint32_t> last_versions) {
    store.write_records({keys.shape(0), keys.data(), values.data(), states.data(), statistics.data(),
                         last_versions.data()});
}

static bool has_any(const RowStore& store, Vector<const uint64_t> keys) {
    return store.has_any(keys.data(), keys.shape(0));
}

static void load(RowStore& store, Vector<const uint64_t> keys, Matrix<const float> values, Matrix<const float> states,
                 Matrix<const float> statistics, Vector<const uint32_t> last_versions) {
    store.load({keys.shape(0), keys.data(), values.data(), states.data(), statistics.data(), last_versions.data()});
}

void bind_row_store(nb::module_& module) {
    nb::class_<RowStore> store(module, "RowStore");
    nb::enum_<OptimizerKind>(store, "Kind")
        .value("sgd", OptimizerKind::kSgd)
        .value("adagrad", OptimizerKind::kAdagrad)
        .value("rowwise_adagrad", OptimizerKind::kRowwiseAdagrad)
        .value("adam", OptimizerKind::kAdam);
    store
        .def(nb::init<size_t, OptimizerKind, const Initializer&>(), nb::arg("dim"), nb::arg("kind"),
             nb::arg("initializer"))
        .def_prop_ro("state_width", &RowStore::state_width)
        .def_prop_ro("num_rows", &RowStore::num_rows)
        .def_prop_ro("memory_bytes", &RowStore::memory_bytes)
        .def("pull", &pull, array_argument("keys"), array_argument("out"), WithoutGil())
        .def("apply", &apply, array_argument("keys"), array_argument("grads"), array_argument("shows"),
             array_argument("clicks"), nb::arg("coefficients"), nb::arg("version"), WithoutGil())
        .def("write_records", &write_records, array_argument("keys"), array_argument("values"),
             array_argument("states"), array_argument("statistics"), array_argument("last_versions"), WithoutGil())
        .def("has_any", &has_any, array_argument("keys"), WithoutGil())
        .def("load", &load, array_argument("keys"), array_argument("values"), array_argument("states"),
             array_argument("statistics"), array_argument("last_versions"), WithoutGil());
}

}  // namespace geartrain
