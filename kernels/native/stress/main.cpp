// Runs all stress cases: `stress [SEED [WINDOWS]]`. Prints what it did; ends with a message where something is wrong.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "advice.h"
#include "kernel_stress.h"
#include "table_stress.h"

namespace geartrain::stress {

// Every admission with every expiry and every capacity; over them, every optimizer with every row dtype.
static void stress_tables(uint64_t seed, size_t num_windows) {
    const size_t dims[] = {16, 17, 1, 5};
    for (size_t i = 0; i < 27; i++) {
        TableCase one;
        one.dim = dims[i % 4];
        one.optimizer = static_cast<OptimizerKind>(i % 6);
        one.dtype = static_cast<RowDtype>(i / 6 % 3);
        one.narrow = i % 5 == 4;
        one.num_windows = num_windows;
        one.seed = seed + 1000 * i;
        RowLife& life = one.life;
        life.seed = mix64(one.seed);
        life.admission = static_cast<Admission>(i % 3);
        life.probability = 0.3;
        life.min_shows = 4;
        life.sketch_bytes = 1 << 16;
        life.expiry = static_cast<Expiry>(i / 3 % 3);
        life.decay = 0.7f;
        life.show_weight = 1.0f;
        life.click_weight = 2.0f;
        life.min_score = 2.0f;
        life.max_rows = i / 9 == 0 ? 0 : one.narrow ? 60'000 : 3'000;
        life.eviction = i / 9 == 1 ? Eviction::kLru : Eviction::kLfu;
        refuse_to_populate(i % 4 == 3);
        stress_table(one);
    }
}

static int run(int argc, char** argv) {
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const size_t num_windows = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 30;
    std::printf("seed %" PRIu64 ", %zu windows a table\n", seed, num_windows);
    stress_kernels(seed);
    stress_tables(seed, num_windows);
    return 0;
}

}  // namespace geartrain::stress

int main(int argc, char** argv) { return geartrain::stress::run(argc, argv); }
