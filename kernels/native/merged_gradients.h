// Several workers' gradients of one table, merged per key without being stored a second time: distinct keys in order of
// first occurrence, and for each the list of where its gradients lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "distinct_keys.h"
#include "floats.h"

namespace geartrain {

struct Contribution {
    size_t num_keys;
    const uint64_t* keys;
    const float* grads;
    const float* shows;
    const float* clicks;
    float weight;
};

// Room for merging, kept from call to call: fresh memory would cost more than the work on it.
struct MergeRoom {
    static constexpr uint32_t kEnd = UINT32_MAX;

    // Where gradients of a key lie, and the next place of the same key.
    struct Place {
        uint32_t contribution, position, next;
    };

    std::vector<uint64_t> distinct;
    std::vector<Place> places;
    std::vector<uint32_t> heads, tails;  // first and last place of each distinct key
};

class MergedGradients {
public:
    // What all contributions together say of one key.
    struct Sum {
        const float* grads;
        float shows, clicks;
    };

    MergedGradients(const std::vector<Contribution>& contributions, size_t dim, MergeRoom& room)
        : contributions_(contributions), dim_(dim), room_(room) {
        if (contributions.size() == 1) {
            single_ = contributions.data();
            keys_ = single_->keys;
            num_keys_ = single_->num_keys;
        } else {
            link();
        }
    }
    MergedGradients(const MergedGradients&) = delete;
    MergedGradients& operator=(const MergedGradients&) = delete;

    const uint64_t* keys() const { return keys_; }
    size_t num_keys() const { return num_keys_; }

    // Asks for the gradients of key i. Those of one contribution are read in order, which the hardware notices.
    [[gnu::always_inline]] void prefetch(size_t i) const {
        if (single_ != nullptr) return;
        const Place& place = room_.places[room_.heads[i]];
        prefetch_bytes<0>(contributions_[place.contribution].grads + place.position * dim_, dim_ * sizeof(float));
    }

    // The only contribution, where its gradients can be taken as they are; else null.
    const Contribution* direct() const { return single_ != nullptr && single_->weight == 1.0f ? single_ : nullptr; }

    // The sums of key i: weighted gradients in the order of the contributions. `scratch` is room for a row, and where
    // the result may lie.
    Sum sum(size_t i, float* scratch) const {
        if (single_ != nullptr) return first(*single_, i, scratch);
        const Place* place = &room_.places[room_.heads[i]];
        Sum total = first(contributions_[place->contribution], place->position, scratch);
        while (place->next != kEnd) {
            if (total.grads != scratch) {
                copy_floats(scratch, total.grads, dim_);
                total.grads = scratch;
            }
            place = &room_.places[place->next];
            const Contribution& from = contributions_[place->contribution];
            add_weighted(scratch, from.grads + place->position * dim_, from.weight, dim_);
            total.shows += from.shows[place->position];
            total.clicks += from.clicks[place->position];
        }
        return total;
    }

private:
    static constexpr uint32_t kEnd = MergeRoom::kEnd;
    using Place = MergeRoom::Place;

    Sum first(const Contribution& from, size_t position, float* scratch) const {
        const float* grads = from.grads + position * dim_;
        if (from.weight != 1.0f) {
            for (size_t d = 0; d < dim_; d++) scratch[d] = grads[d] * from.weight;
            grads = scratch;
        }
        return {grads, from.shows[position], from.clicks[position]};
    }

    void link() {
        size_t total = 0;
        for (const Contribution& one : contributions_) total += one.num_keys;
        room_.distinct.resize(total);
        room_.places.resize(total);
        room_.heads.resize(total);
        room_.tails.resize(total);
        DistinctKeys& numbers = thread_distinct_keys();
        numbers.reset(total, room_.distinct.data());
        Place* const places = room_.places.data();
        uint32_t *const heads = room_.heads.data(), *const tails = room_.tails.data();
        uint32_t begin = 0;
        for (uint32_t c = 0; c < contributions_.size(); c++) {
            const Contribution& from = contributions_[c];
            // A new key's place is first linked to itself, then written: as good as a branch, but never mispredicted.
            numbers.add(from.keys, from.num_keys, [=](size_t i, uint32_t number, bool is_new, uint64_t) {
                const uint32_t at = begin + static_cast<uint32_t>(i);
                places[is_new ? at : tails[number]].next = at;
                places[at] = {c, static_cast<uint32_t>(i), kEnd};
                heads[number] = is_new ? at : heads[number];
                tails[number] = at;
            });
            begin += static_cast<uint32_t>(from.num_keys);
        }
        keys_ = room_.distinct.data();
        num_keys_ = numbers.size();
    }

    const std::vector<Contribution>& contributions_;
    size_t dim_;
    const Contribution* single_ = nullptr;  // the only contribution
    const uint64_t* keys_ = nullptr;
    size_t num_keys_ = 0;
    MergeRoom& room_;
};

}  // namespace geartrain
