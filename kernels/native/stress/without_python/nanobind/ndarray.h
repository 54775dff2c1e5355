// Stands in for nanobind's arrays: a pointer and a shape.
#pragma once

#include <array>
#include <cstddef>

#include "nanobind.h"

namespace nanobind {

template <size_t kDims>
struct ndim {
    static constexpr size_t value = kDims;
};
struct c_contig {};
namespace device {
struct cpu {};
}  // namespace device

template <typename T, typename Dims, typename Order, typename Device>
class ndarray {
public:
    template <typename... Sizes>
    explicit ndarray(T* data, Sizes... sizes) : data_(data), shape_{static_cast<size_t>(sizes)...} {
        static_assert(sizeof...(Sizes) == Dims::value);
    }

    T* data() const { return data_; }
    size_t shape(size_t axis) const { return shape_[axis]; }
    size_t size() const {
        size_t product = 1;
        for (const size_t length : shape_) product *= length;
        return product;
    }

private:
    T* data_;
    std::array<size_t, Dims::value> shape_;
};

}  // namespace nanobind
