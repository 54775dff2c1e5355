// Array types of the binding: C-contiguous CPU arrays, taken as they are (never converted or copied).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace geartrain {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Cube = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

inline auto array_argument(const char* name) { return nb::arg(name).noconvert(); }

void bind_cpu(nb::module_& module);
void bind_hashing(nb::module_& module);
void bind_initializer(nb::module_& module);
void bind_lookup(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_row_store(nb::module_& module);
void bind_row_stores(nb::module_& module);
void bind_dense_update(nb::module_& module);
void bind_take_columns(nb::module_& module);
void bind_wire_codec(nb::module_& module);
void bind_memory_limit(nb::module_& module);

}  // namespace geartrain
