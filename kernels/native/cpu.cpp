// Whether this CPU can run the x86-64-v3 build.
#include "arrays.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace geartrain {

#if defined(__x86_64__)

static bool has_all(unsigned value, unsigned bits) { return (value & bits) == bits; }

static bool supports_v3() {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    // FMA, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C.
    if (!has_all(c, 1u << 12 | 1u << 20 | 1u << 22 | 1u << 23 | 1u << 27 | 1u << 28 | 1u << 29)) return false;
    unsigned enabled, high;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    if (!has_all(enabled, 0x6)) return false;  // the operating system saves the AVX registers
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!has_all(b, 1u << 3 | 1u << 5 | 1u << 8)) return false;  // BMI1, AVX2, BMI2
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && has_all(c, 1u << 5);  // LZCNT
}

#else

static bool supports_v3() { return false; }

#endif

void bind_cpu(nb::module_& module) { module.def("supports_v3", &supports_v3); }

}  // namespace geartrain
