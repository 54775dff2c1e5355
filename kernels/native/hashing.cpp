#include "hashing.h"

#include "arrays.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "strings are hashed as little-endian words");

namespace geartrain {

static void mix_all(Vector<const uint64_t> values, Vector<uint64_t> out) {
    const uint64_t* in = values.data();
    uint64_t* to = out.data();
    for (size_t i = 0; i < values.shape(0); i++) to[i] = mix64(in[i]);
}

static void keys_of_integers(Vector<const uint64_t> ids, uint64_t seed, Vector<uint64_t> out) {
    const uint64_t* in = ids.data();
    uint64_t* to = out.data();
    for (size_t i = 0; i < ids.shape(0); i++) to[i] = mix64(in[i] ^ seed);
}

static void hash_strings(Vector<const int64_t> offsets, Vector<const uint8_t> data, uint64_t seed,
                         Vector<uint64_t> out) {
    const int64_t* offset = offsets.data();
    for (size_t i = 0; i < out.shape(0); i++) {
        out.data()[i] = hash_bytes(data.data() + offset[i], offset[i + 1] - offset[i], seed);
    }
}

static void shard_of(Vector<const uint64_t> keys, Vector<uint16_t> out) {
    const uint64_t* in = keys.data();
    uint16_t* to = out.data();
    for (size_t i = 0; i < keys.shape(0); i++) to[i] = static_cast<uint16_t>(mix64(in[i]) >> kShardShift);
}

void bind_hashing(nb::module_& module) {
    module.def("mix64", &mix_all, array_argument("values"), array_argument("out"), WithoutGil());
    module.def("keys_of_integers", &keys_of_integers, array_argument("ids"), nb::arg("seed"), array_argument("out"),
               WithoutGil());
    module.def("hash_strings", &hash_strings, array_argument("offsets"), array_argument("data"), nb::arg("seed"),
               array_argument("out"), WithoutGil());
    module.def("shard_of", &shard_of, array_argument("keys"), array_argument("out"), WithoutGil());
}

}  // namespace geartrain
