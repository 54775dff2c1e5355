// One table under pulls, pushes, expiry, eviction, growth and cuts from eight threads at once.
#pragma once

#include <cstdint>
#include <string>

#include "row_store.h"

namespace geartrain::stress {

struct TableCase {
    size_t dim;
    OptimizerKind optimizer;
    RowDtype dtype;
    RowLife life;
    bool narrow;  // all keys in three shards
    size_t num_windows;
    uint64_t seed;

    std::string name() const;
};

// Ends the run with a message when something does not hold.
void stress_table(const TableCase& table_case);

}  // namespace geartrain::stress
