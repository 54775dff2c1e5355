// Initial values of rows: a counter-based generator of exactly rounded operations; defined in reference/initializer.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace geartrain {

class Initializer {
public:
    enum class Kind { kZero, kUniform, kNormal };

    Initializer(Kind kind, double scale, uint64_t seed) : kind_(kind), scale_(scale), seed_(seed) {}

    // Writes the initial values of the row of `key` to out[0, dim).
    void fill(uint64_t key, float* out, size_t dim) const;

private:
    Kind kind_;
    double scale_;
    uint64_t seed_;
};

}  // namespace geartrain
