// The weighted sum of contributions per unique key.
#include "arrays.h"
#include "floats.h"

namespace geartrain {

constexpr size_t kAhead = 8;

// Adds one contribution to the sums: key i of it goes to row inverse[i].
static void add_contribution(Vector<const int64_t> inverse, Matrix<const float> grads, Vector<const float> shows,
                             Vector<const float> clicks, float weight, Matrix<float> grad_sums, Vector<float> show_sums,
                             Vector<float> click_sums) {
    const size_t dim = grads.shape(1), num_keys = inverse.shape(0);
    const int64_t* row = inverse.data();
    for (size_t i = 0; i < num_keys; i++) {
        if (i + kAhead < num_keys) prefetch_bytes<1>(grad_sums.data() + row[i + kAhead] * dim, dim * sizeof(float));
        add_weighted(grad_sums.data() + row[i] * dim, grads.data() + i * dim, weight, dim);
        show_sums.data()[row[i]] += shows.data()[i];
        click_sums.data()[row[i]] += clicks.data()[i];
    }
}

void bind_merge(nb::module_& module) {
    module.def("add_contribution", &add_contribution, array_argument("inverse"), array_argument("grads"),
               array_argument("shows"), array_argument("clicks"), nb::arg("weight"), array_argument("grad_sums"),
               array_argument("show_sums"), array_argument("click_sums"), WithoutGil());
}

}  // namespace geartrain
