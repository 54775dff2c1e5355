// The optimizers on a block of dense parameters, in place.
#include <nanobind/stl/array.h>

#include "arrays.h"
#include "optimizers.h"

namespace geartrain {

template <typename Kind>
static void apply_dense(Vector<float> params, Vector<const float> grads, Matrix<float> states,
                        const CoefficientArray& numbers) {
    const size_t size = params.shape(0);
    float* first = states.data();
    float* second = states.shape(0) > 1 ? first + size : nullptr;
    Kind::update(params.data(), first, second, grads.data(), size, coefficients(numbers));
}

template <typename Kind>
static void bind_kind(nb::module_& module, const char* name) {
    module.def(name, &apply_dense<Kind>, array_argument("params"), array_argument("grads"), array_argument("states"),
               nb::arg("coefficients"), WithoutGil());
}

void bind_dense_update(nb::module_& module) {
    bind_kind<Sgd>(module, "apply_dense_sgd");
    bind_kind<Adagrad>(module, "apply_dense_adagrad");
    bind_kind<Adam>(module, "apply_dense_adam");
    bind_kind<Average>(module, "apply_dense_average");
}

}  // namespace geartrain
