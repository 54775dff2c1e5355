#include "initializer.h"

#include <cmath>

#include "arrays.h"
#include "hashing.h"

namespace geartrain {

template <size_t kSize>
static double polynomial(double x, const double (&coefficients)[kSize]) {
    double value = coefficients[0];
    for (size_t i = 1; i < kSize; i++) value = value * x + coefficients[i];
    return value;
}

static double cosine_of_quarter_turns(double turn) {
    static constexpr double kCosine[] = {
        3.4377391790986044e-15,  -5.294400200734619e-13, 6.565963114979468e-11,
        -6.386603083791849e-09,  4.710874778818169e-07,  -2.5202042373060596e-05,
        0.0009192602748394263,   -0.020863480763352957,  0.253669507901048,
        -1.2337005501361697,     1.0,
    };
    return polynomial(turn * turn, kCosine);
}

static double log_fraction(uint64_t numerator) {
    static constexpr double kSeries[] = {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                         1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    int exponent;
    double mantissa = std::frexp(static_cast<double>(numerator), &exponent);
    if (mantissa < 0.7071067811865476) {
        mantissa *= 2.0;
        exponent -= 1;
    }
    const double ratio = (mantissa - 1.0) / (mantissa + 1.0);
    const double series = polynomial(ratio * ratio, kSeries);
    return (exponent - 33) * 0.6931471805599453 + 2.0 * ratio * series;
}

static float normal(uint64_t bits, double scale) {
    const double radius = std::sqrt(-2.0 * log_fraction(2 * (bits >> 32) + 1));
    const unsigned quadrant = (bits >> 30) & 3;
    double turn = static_cast<double>(bits & ((1u << 30) - 1)) * 0x1p-30;
    if (quadrant & 1) turn = 1.0 - turn;
    const double cosine = cosine_of_quarter_turns(turn);
    const bool negative = quadrant == 1 || quadrant == 2;
    return static_cast<float>(radius * (negative ? -cosine : cosine) * scale);
}

void Initializer::fill(uint64_t key, float* out, size_t dim) const {
    const uint64_t state = mix64(key ^ seed_);
    switch (kind_) {
        case Kind::kZero:
            for (size_t d = 0; d < dim; d++) out[d] = 0.0f;
            break;
        case Kind::kUniform: {
            const float step = static_cast<float>(scale_ * 0x1p-23);
            for (size_t d = 0; d < dim; d++) {
                const int32_t centered = static_cast<int32_t>(mix64(state + (d + 1) * kGolden) >> 40) - (1 << 23);
                out[d] = static_cast<float>(centered) * step;
            }
            break;
        }
        case Kind::kNormal:
            for (size_t d = 0; d < dim; d++) out[d] = normal(mix64(state + (d + 1) * kGolden), scale_);
            break;
    }
}

static void initial_rows(Vector<const uint64_t> keys, const Initializer& initializer, Matrix<float> out) {
    const size_t dim = out.shape(1);
    for (size_t i = 0; i < keys.shape(0); i++) initializer.fill(keys.data()[i], out.data() + i * dim, dim);
}

void bind_initializer(nb::module_& module) {
    nb::class_<Initializer> initializer(module, "Initializer");
    nb::enum_<Initializer::Kind>(initializer, "Kind")
        .value("zero", Initializer::Kind::kZero)
        .value("uniform", Initializer::Kind::kUniform)
        .value("normal", Initializer::Kind::kNormal);
    initializer.def(nb::init<Initializer::Kind, double, uint64_t>(), nb::arg("kind"), nb::arg("scale"),
                    nb::arg("seed"));
    module.def("initial_rows", &initial_rows, array_argument("keys"), nb::arg("initializer"), array_argument("out"),
               WithoutGil());
}

}  // namespace geartrain
