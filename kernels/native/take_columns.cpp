// Entries of many columns at the same rows; defined in reference/take_columns.py.
#include "arrays.h"

namespace geartrain {

static void take_columns(Matrix<const uint64_t> columns, Vector<const int64_t> rows, Matrix<uint64_t> out,
                         size_t start) {
    const size_t num_rows = rows.shape(0);
    const int64_t* row = rows.data();
    for (size_t column = 0; column < columns.shape(0); column++) {
        const uint64_t* from = columns.data() + column * columns.shape(1);
        uint64_t* to = out.data() + column * out.shape(1) + start;
        for (size_t i = 0; i < num_rows; i++) to[i] = from[row[i]];
    }
}

void bind_take_columns(nb::module_& module) {
    module.def("take_columns", &take_columns, array_argument("columns"), array_argument("rows"), array_argument("out"),
               nb::arg("start"), WithoutGil());
}

}  // namespace geartrain
