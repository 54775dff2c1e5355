// The kernels that keep no state, on odd inputs, from several threads at once.
#pragma once

#include <cstdint>

namespace geartrain::stress {

// Ends the run with a message when something does not hold.
void stress_kernels(uint64_t seed);

}  // namespace geartrain::stress
