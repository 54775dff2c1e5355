// What workers push and pull: hot keys again and again, a stream of new ones, and keys of odd values among them.
#pragma once

#include <cmath>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "merged_gradients.h"
#include "random.h"
#include "shard_index.h"

namespace geartrain::stress {

struct Push {
    std::vector<uint64_t> keys;
    std::vector<float> grads, shows, clicks;
    float weight;
};

class Traffic {
public:
    // A narrow one has all its keys in three shards.
    Traffic(uint64_t seed, size_t dim, bool narrow) : random_(seed), seed_(seed), dim_(dim), narrow_(narrow) {}

    // The pushes of the next window; the keys of each are all different.
    std::vector<Push> window() {
        num_ids_ += kNewIds;
        std::vector<Push> pushes(random_.below(4));
        for (Push& push : pushes) fill(push);
        return pushes;
    }

    // Keys to pull, some of which nobody pushed yet, and some twice.
    std::vector<uint64_t> pull(Random& random, size_t num_windows) const {
        std::vector<uint64_t> keys(random.one_in(8) ? random.below(3) : random.below(kMostKeys));
        for (uint64_t& key : keys) key = key_of(random.below(kHotIds + (num_windows + 1) * kNewIds));
        return keys;
    }

private:
    static constexpr size_t kHotIds = 1500, kNewIds = 600, kMostKeys = 3000;

    void fill(Push& push) {
        const size_t num_keys = random_.one_in(8) ? random_.below(3) : random_.below(kMostKeys);
        std::unordered_set<uint64_t> seen;
        for (size_t i = 0; i < num_keys; i++) {
            const size_t id = random_.one_in(3) ? num_ids_ - random_.below(kNewIds) : random_.below(kHotIds);
            const uint64_t key = key_of(id);
            if (!seen.insert(key).second) continue;
            push.keys.push_back(key);
            push.shows.push_back(random_.one_in(20) ? 300.5f : static_cast<float>(random_.below(4)));
            push.clicks.push_back(static_cast<float>(random_.below(2)));
            for (size_t d = 0; d < dim_; d++) push.grads.push_back(gradient());
        }
        push.weight = random_.one_in(2) ? 1.0f : random_.between(0.0f, 1.0f);
    }

    float gradient() {
        const float odd[] = {1e-41f, 1e20f, -3e38f, INFINITY, NAN};
        if (random_.one_in(2000)) return odd[random_.below(5)];
        return random_.between(-1.0f, 1.0f);
    }

    uint64_t key_of(size_t id) const {
        if (id < 2) return id - 1;  // the largest key, and 0
        const uint64_t hash = mix64(id ^ seed_);
        return unmix64(narrow_ ? hash >> 10 | (id % 3) << kShardShift : hash);
    }

    Random random_;
    uint64_t seed_;
    size_t dim_;
    bool narrow_;
    size_t num_ids_ = kHotIds;
};

inline std::vector<Contribution> contributions(const std::vector<Push>& pushes) {
    std::vector<Contribution> all;
    for (const Push& push : pushes) {
        all.push_back({push.keys.size(), push.keys.data(), push.grads.data(), push.shows.data(), push.clicks.data(),
                       push.weight});
    }
    return all;
}

}  // namespace geartrain::stress
