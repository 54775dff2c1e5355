#include "kernel_stress.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arrays.h"
#include "expect.h"
#include "initializer.h"
#include "optimizers.h"
#include "random.h"

namespace geartrain::stress {

static constexpr size_t kThreads = 8, kRounds = 60;

// An array in memory of exactly its size, so that a step beside it is seen. Of size zero it is not null.
template <typename T>
class Buffer {
public:
    explicit Buffer(size_t size) : values_(size) { values_.reserve(1); }

    T* data() { return values_.data(); }
    size_t size() const { return values_.size(); }
    T& operator[](size_t i) { return values_[i]; }
    T* begin() { return values_.data(); }
    T* end() { return values_.data() + values_.size(); }
    Vector<T> vector() { return Vector<T>(data(), size()); }
    Vector<const T> in() { return Vector<const T>(data(), size()); }
    template <typename As>
    Matrix<As> matrix(size_t rows) {
        return Matrix<As>(data(), rows, rows == 0 ? 0 : size() / rows);
    }

private:
    std::vector<T> values_;
};

// What the kernels made, so that threads can be compared.
class Digest {
public:
    template <typename T>
    void add(Buffer<T>& made) {
        value_ = mix64(value_ ^ hash_bytes(reinterpret_cast<const uint8_t*>(made.data()), made.size() * sizeof(T), 7));
    }
    void add(int64_t number) { value_ = mix64(value_ ^ static_cast<uint64_t>(number)); }
    uint64_t value() const { return value_; }

private:
    uint64_t value_ = 0;
};

class KernelRun {
public:
    KernelRun(const nb::module_& module, uint64_t seed) : module_(module), random_(seed) {}

    uint64_t run() {
        for (size_t i = 0; i < kRounds; i++) {
            hash();
            deduplicate();
            plan();
            pool();
            update_dense();
            for (const char* format : {"fp16", "bf16", "int8"}) code(format);
        }
        return digest_.value();
    }

private:
    // Often the sizes at which loops have their edges.
    size_t odd_size(size_t most) {
        const size_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, most};
        return random_.one_in(2) ? sizes[random_.below(11)] % (most + 1) : random_.below(most + 1);
    }

    float odd_float() {
        const float odd[] = {0.0f, -0.0f, 1e-45f, 1e-39f, 65504.0f, 3.4e38f, -3.4e38f, INFINITY, -INFINITY, NAN};
        return random_.one_in(40) ? odd[random_.below(10)] : random_.between(-2.0f, 2.0f);
    }

    Buffer<float> floats(size_t size) {
        Buffer<float> made(size);
        for (float& value : made) value = odd_float();
        return made;
    }

    // Keys of which many are the same, with 0 and the largest one.
    Buffer<uint64_t> keys(size_t size) {
        Buffer<uint64_t> made(size);
        const size_t num_ids = 1 + random_.below(size + 1);
        for (uint64_t& key : made) key = random_.below(num_ids) * kGolden - random_.below(2);
        return made;
    }

    void hash() {
        Buffer<uint64_t> ids = keys(odd_size(300)), mixed(ids.size());
        Buffer<uint16_t> shards(ids.size());
        module_.function<void(Vector<const uint64_t>, Vector<uint64_t>)>("mix64")(ids.in(), mixed.vector());
        for (size_t i = 0; i < ids.size(); i++) EXPECT(unmix64(mixed[i]) == ids[i], "mix64 is not undone");
        digest_.add(mixed);
        module_.function<void(Vector<const uint64_t>, Vector<uint16_t>)>("shard_of")(ids.in(), shards.vector());
        digest_.add(shards);
        Buffer<int64_t> offsets(ids.size() + 1);
        for (size_t i = 0; i < ids.size(); i++) offsets[i + 1] = offsets[i] + static_cast<int64_t>(odd_size(20));
        Buffer<uint8_t> bytes(static_cast<size_t>(offsets[ids.size()]));
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.next());
        using HashStrings = void(Vector<const int64_t>, Vector<const uint8_t>, uint64_t, Vector<uint64_t>);
        module_.function<HashStrings>("hash_strings")(offsets.in(), bytes.in(), 5, mixed.vector());
        digest_.add(mixed);
        const size_t dim = 1 + odd_size(40);
        for (const auto kind : {Initializer::Kind::kZero, Initializer::Kind::kUniform, Initializer::Kind::kNormal}) {
            Buffer<float> rows(ids.size() * dim);
            using InitialRows = void(Vector<const uint64_t>, const Initializer&, Matrix<float>);
            module_.function<InitialRows>("initial_rows")(ids.in(), Initializer(kind, 0.5, random_.next()),
                                                          Matrix<float>(rows.data(), ids.size(), dim));
            digest_.add(rows);
        }
    }

    void deduplicate() {
        Buffer<uint64_t> all = keys(odd_size(3000)), unique(all.size());
        Buffer<int32_t> inverse(all.size());
        using Deduplicate = size_t(Vector<const uint64_t>, Vector<uint64_t>, Vector<int32_t>);
        const size_t num_unique =
            module_.function<Deduplicate>("deduplicate")(all.in(), unique.vector(), inverse.vector());
        for (size_t i = 0; i < all.size(); i++) {
            EXPECT(static_cast<size_t>(inverse[i]) < num_unique && unique[inverse[i]] == all[i], "key %zu is lost", i);
        }
        digest_.add(inverse);
    }

    void plan() {
        const size_t num_slots = odd_size(9), num_tables = 1 + random_.below(4), num_servers = 1 + random_.below(4);
        Buffer<int64_t> starts(num_slots + 1), tables(num_slots), owners(1024), counts(num_servers * num_tables);
        for (size_t i = 0; i < num_slots; i++) {
            starts[i + 1] = starts[i] + static_cast<int64_t>(odd_size(400));
            tables[i] = static_cast<int64_t>(random_.below(num_tables));
        }
        for (int64_t& owner : owners) owner = static_cast<int64_t>(random_.below(num_servers));
        Buffer<uint64_t> all = keys(static_cast<size_t>(starts[num_slots])), unique(all.size());
        Buffer<int32_t> inverse(all.size());
        using Plan = size_t(Vector<const uint64_t>, Vector<const int64_t>, Vector<const int64_t>,
                            Vector<const int64_t>, Vector<uint64_t>, Matrix<int64_t>, Vector<int32_t>);
        const size_t num_unique = module_.function<Plan>("plan_lookup")(
            all.in(), starts.in(), tables.in(), owners.in(), unique.vector(),
            Matrix<int64_t>(counts.data(), num_servers, num_tables), inverse.vector());
        EXPECT(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) == num_unique,
               "counts of a plan do not sum up");
        for (size_t i = 0; i < all.size(); i++) EXPECT(unique[inverse[i]] == all[i], "key %zu of a plan is lost", i);
        digest_.add(inverse);
        using FirstPlace = int64_t(Vector<const int64_t>, int64_t);
        EXPECT(module_.function<FirstPlace>("first_fall")(starts.in(), starts[num_slots]) == -1, "offsets fall");
    }

    void pool() {
        const size_t num_samples = 1 + odd_size(150), num_slots = odd_size(5), dim = 1 + odd_size(17);
        const size_t num_bags = num_samples * num_slots, num_rows = 1 + random_.below(50);
        Buffer<int32_t> offsets(num_bags + 1);
        const bool one_key_bags = random_.one_in(4);
        for (size_t i = 0; i < num_bags; i++) {
            offsets[i + 1] = offsets[i] + (one_key_bags ? 1 : static_cast<int32_t>(random_.below(4)));
        }
        std::optional<Vector<const int32_t>> given = offsets.in();
        Buffer<int32_t> inverse(static_cast<size_t>(offsets[num_bags]));
        for (int32_t& row : inverse) row = static_cast<int32_t>(random_.below(num_rows));
        Buffer<uint8_t> means(num_slots);
        for (uint8_t& mean : means) mean = static_cast<uint8_t>(random_.below(2));
        Buffer<float> rows = floats(num_rows * dim), pooled(num_bags * dim), grads(num_rows * dim);
        using Forward = bool(Matrix<const float>, Vector<const int32_t>, std::optional<Vector<const int32_t>>,
                             Vector<const uint8_t>, Cube<float>);
        const auto forward = [&] {
            return module_.function<Forward>("pool_forward")(rows.matrix<const float>(num_rows), inverse.in(), given,
                                                             means.in(),
                                                             Cube<float>(pooled.data(), num_samples, num_slots, dim));
        };
        EXPECT(forward(), "bags are refused");
        digest_.add(pooled);
        using Backward = bool(Cube<const float>, Vector<const int32_t>, std::optional<Vector<const int32_t>>,
                              Vector<const uint8_t>, Matrix<float>);
        const auto backward = [&] {
            return module_.function<Backward>("pool_backward")(
                Cube<const float>(pooled.data(), num_samples, num_slots, dim), inverse.in(), given, means.in(),
                grads.matrix<float>(num_rows));
        };
        EXPECT(backward(), "bags are refused");
        digest_.add(grads);
        Buffer<float> labels = floats(num_samples), shows(num_rows), clicks(num_rows);
        using CountShows = bool(Vector<const int32_t>, std::optional<Vector<const int32_t>>, Vector<const float>,
                                Vector<float>, Vector<float>);
        const auto count_shows = [&] {
            return module_.function<CountShows>("count_shows")(inverse.in(), given, labels.in(), shows.vector(),
                                                               clicks.vector());
        };
        EXPECT(count_shows(), "bags are refused");
        digest_.add(shows);
        const auto refused = [&](int32_t& number, int32_t wrong) {
            const int32_t right = std::exchange(number, wrong);
            EXPECT(!forward() && !backward() && !count_shows(), "keys out of range are taken");
            number = right;
        };
        for (int32_t wrong : {int32_t{-1}, INT32_MIN, INT32_MAX}) {
            refused(offsets[random_.below(num_bags + 1)], wrong);
            refused(offsets[num_samples * random_.below(num_slots + 1)], wrong);  // where a slot begins
        }
        if (num_bags > 1) {
            int32_t& offset = offsets[1 + random_.below(num_bags - 1)];
            refused(offset, offsets[num_bags] + 1);
        }
        given.reset();
        const bool fits = inverse.size() == num_bags;
        EXPECT(forward() == fits && backward() == fits && (!fits || count_shows()), "bags of one key are mistaken");
        if (!fits) given = offsets.in();
        if (inverse.size() == 0) return;
        for (int32_t wrong : {int32_t{-1}, static_cast<int32_t>(num_rows), INT32_MIN, INT32_MAX}) {
            refused(inverse[random_.below(inverse.size())], wrong);
        }
    }

    void update_dense() {
        const size_t size = odd_size(100);
        const CoefficientArray numbers{2.0f, 0.1f, 0.1f, 0.1f, 0.001f, 0.9f, 1e-8f,
                                       0.0f, 1.0f, 1.0f, 0.1f, -1.0f, 1.0f, 1.0f};
        for (const char* kind : {"apply_dense_sgd", "apply_dense_adagrad", "apply_dense_adam", "apply_dense_average"}) {
            Buffer<float> params = floats(size), grads = floats(size), states(2 * size);
            using Update = void(Vector<float>, Vector<const float>, Matrix<float>, const CoefficientArray&);
            module_.function<Update>(kind)(params.vector(), grads.in(), Matrix<float>(states.data(), 2, size), numbers);
            digest_.add(params);
        }
    }

    // Rows to the wire and back, then whatever bytes a peer may send; both from an address that fits nothing.
    void code(const std::string& format) {
        const size_t num_rows = odd_size(40), dim = 1 + odd_size(33);
        const size_t width = format == "int8" ? dim + 8 : format == "fp16" ? 2 * dim + 2 : 2 * dim;
        Buffer<float> rows = floats(num_rows * dim), decoded(num_rows * dim);
        Buffer<uint8_t> encoded(num_rows * width + 1);
        const Matrix<uint8_t> out(encoded.data() + 1, num_rows, width);
        const Matrix<const uint8_t> in(encoded.data() + 1, num_rows, width);
        const Matrix<float> back(decoded.data(), num_rows, dim);
        const auto encode = module_.function<int64_t(Matrix<const float>, Matrix<uint8_t>)>(("encode_" + format).c_str());
        const auto decode = module_.function<int64_t(Matrix<const uint8_t>, Matrix<float>)>(("decode_" + format).c_str());
        const int64_t refused = encode(Matrix<const float>(rows.data(), num_rows, dim), out);
        EXPECT(refused < static_cast<int64_t>(num_rows), "%s refuses row %ld", format.c_str(), static_cast<long>(refused));
        if (refused < 0) EXPECT(decode(in, back) == -1, "what %s encoded is refused", format.c_str());
        digest_.add(refused < 0 ? decoded : rows);
        for (uint8_t& byte : encoded) byte = static_cast<uint8_t>(random_.next());
        const int64_t bad = decode(in, back);
        EXPECT(bad < static_cast<int64_t>(num_rows), "%s refuses row %ld", format.c_str(), static_cast<long>(bad));
        digest_.add(bad);
    }

    const nb::module_& module_;
    Random random_;
    Digest digest_;
};

void stress_kernels(uint64_t seed) {
    nb::module_ module;
    bind_hashing(module);
    bind_initializer(module);
    bind_lookup(module);
    bind_pool(module);
    bind_dense_update(module);
    bind_wire_codec(module);
    std::vector<uint64_t> digests(kThreads);
    std::vector<std::thread> threads;
    for (uint64_t& digest : digests) {
        threads.emplace_back([&module, &digest, seed] { digest = KernelRun(module, seed).run(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const uint64_t digest : digests) EXPECT(digest == digests[0], "threads computed different results");
    std::printf("  kernels without state: %zu rounds in each of %zu threads\n", kRounds, kThreads);
    std::fflush(stdout);
}

}  // namespace geartrain::stress
