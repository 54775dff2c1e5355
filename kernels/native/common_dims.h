// Code for the dims that most models use, compiled with them as constants.
#pragma once

#include <cstddef>
#include <type_traits>

namespace geartrain {

// Calls `work` with the dim as a constant where it is one of those that most models use (16 values, and 17 with a
// first-order weight beside them), else with 0.
template <typename Work>
auto with_dim(size_t dim, Work work) {
    if (dim == 16) return work(std::integral_constant<size_t, 16>());
    if (dim == 17) return work(std::integral_constant<size_t, 17>());
    return work(std::integral_constant<size_t, 0>());
}

}  // namespace geartrain
