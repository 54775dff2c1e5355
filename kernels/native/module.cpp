// The Python module. Python checks shapes and ranges before a call; these functions trust them.
#include "arrays.h"

NB_MODULE(GEARTRAIN_MODULE, module) {
    geartrain::bind_cpu(module);
    geartrain::bind_hashing(module);
    geartrain::bind_initializer(module);
    geartrain::bind_lookup(module);
    geartrain::bind_pool(module);
    geartrain::bind_row_store(module);
    geartrain::bind_row_stores(module);
    geartrain::bind_dense_update(module);
    geartrain::bind_take_columns(module);
    geartrain::bind_wire_codec(module);
    geartrain::bind_memory_limit(module);
}
