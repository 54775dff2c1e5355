#include "shard_index.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace geartrain {

// Places are computed a block ahead of the prefetches, prefetches kAhead ahead of the probes: enough to keep as many
// requests under way as the memory answers at once.
constexpr size_t kAhead = 128;
constexpr size_t kBlock = 64;
constexpr size_t kRing = 256;
static_assert(kRing >= kAhead + kBlock, "places under way have rooms of their own");

// Regions below this size use small pages: a huge page may cost more than all of a small table.
constexpr size_t kHugeLevelBytes = size_t{4} << 20;

// Keys per bucket at which a shard doubles: from 2.5 for the first shard to 3.5 for the last.
static uint32_t limit_at(unsigned shard, unsigned level) {
    const uint64_t per_1024_buckets = 2560 + shard;
    return static_cast<uint32_t>((per_1024_buckets << level) >> 10);
}

static size_t level_bytes(unsigned level) { return (size_t{kNumShards} << level) * 64; }

ShardIndex::ShardIndex() : region_(level_bytes(kMaxLevel + 1), 4) {
    open_level(0);
    for (unsigned shard = 0; shard < kNumShards; shard++) limits_[shard] = limit_at(shard, 0);
}

void ShardIndex::find_many(const uint64_t* keys, size_t size, uint32_t* rows) const {
    if (size == 0) return;
    uint32_t places[kRing];
    std::fill_n(places, kRing, place(hash(keys[0])));  // prefetched in vain behind the last key
    const auto compute_places = [&](size_t begin) {
        for (size_t i = begin; i < std::min(size, begin + kBlock); i++) places[i % kRing] = place(hash(keys[i]));
    };
    // Keys that may stand in a later bucket are looked up at the end, when that has arrived.
    uint32_t late[kMostAtOnce];
    size_t num_late = 0;
    const Bucket* const all = buckets();
    for (size_t begin = 0; begin < kAhead; begin += kBlock) compute_places(begin);
    for (size_t i = 0; i < std::min(size, kAhead); i++) __builtin_prefetch(all + places[i]);
    for (size_t begin = 0; begin < size; begin += kBlock) {
        compute_places(begin + kAhead);
        const size_t end = std::min(size, begin + kBlock);
        for (size_t i = begin; i < end; i++) {
            __builtin_prefetch(all + places[(i + kAhead) % kRing]);
            const Bucket& bucket = all[places[i % kRing]];
            const unsigned slot = first_match(bucket, keys[i]);
            const uint32_t stored = bucket.rows[slot];
            rows[i] = stored - 1;
            if (__builtin_expect((slot == kSlots) | (stored == 0), 0)) {
                rows[i] = kNoRow;
                if (bucket.rows[kSlots] != 0) {
                    __builtin_prefetch(&bucket + 1);
                    late[num_late++] = static_cast<uint32_t>(i);
                }
            }
        }
    }
    for (size_t n = 0; n < num_late; n++) {
        const uint64_t key = keys[late[n]], mixed = hash(key);
        rows[late[n]] = find_displaced(key, place(mixed), levels_[shard_of(mixed)]);
    }
}

uint32_t ShardIndex::find(uint64_t key, uint64_t hash) const {
    const uint32_t bucket = place(hash);
    const unsigned slot = first_match(buckets()[bucket], key);
    if (slot < kSlots && buckets()[bucket].rows[slot] != 0) return buckets()[bucket].rows[slot] - 1;
    return find_displaced(key, bucket, levels_[shard_of(hash)]);
}

uint32_t ShardIndex::find_displaced(uint64_t key, uint32_t bucket, unsigned level) const {
    // Once around at most: keys may have been displaced past every bucket of a shard.
    for (size_t n = 0; n < size_t{1} << level && buckets()[bucket].rows[kSlots] != 0; n++) {
        bucket = next(bucket, level);
        const unsigned slot = first_match(buckets()[bucket], key);
        if (slot < kSlots && buckets()[bucket].rows[slot] != 0) return buckets()[bucket].rows[slot] - 1;
    }
    return kNoRow;
}

void ShardIndex::insert(uint64_t key, uint64_t hash, uint32_t row) {
    const unsigned shard = shard_of(hash);
    if (counts_[shard] >= limits_[shard]) grow(shard);
    append(place(hash), levels_[shard], key, row + 1);
    counts_[shard]++;
}

void ShardIndex::append(uint32_t bucket, unsigned level, uint64_t key, uint32_t stored_row) {
    for (;; bucket = next(bucket, level)) {
        Bucket& here = buckets()[bucket];
        for (unsigned slot = 0; slot < kSlots; slot++) {
            if (here.rows[slot] != 0) continue;
            here.keys[slot] = key;
            here.rows[slot] = stored_row;
            return;
        }
        here.rows[kSlots]++;
    }
}

void ShardIndex::erase(uint64_t key, uint64_t hash) {
    const unsigned shard = shard_of(hash), level = levels_[shard];
    for (uint32_t bucket = place(hash);; bucket = next(bucket, level)) {
        Bucket& here = buckets()[bucket];
        const unsigned slot = first_match(here, key);
        if (slot == kSlots || here.rows[slot] == 0) {
            here.rows[kSlots]--;  // it was displaced past this one
            continue;
        }
        unsigned last = kSlots - 1;
        while (here.rows[last] == 0) last--;
        here.keys[slot] = here.keys[last];
        here.rows[slot] = here.rows[last];
        here.rows[last] = 0;
        counts_[shard]--;
        return;
    }
}

void ShardIndex::grow(unsigned shard) {
    const auto began = std::chrono::steady_clock::now();
    const unsigned old_level = levels_[shard], level = old_level + 1;
    if (level > kMaxLevel) throw std::length_error("a shard has no room for more keys");
    if (level >= num_levels_) open_level(level);
    const Bucket* old = buckets() + first_at(shard, old_level);
    for (size_t i = 0; i < size_t{1} << old_level; i++) {
        for (unsigned slot = 0; slot < kSlots && old[i].rows[slot] != 0; slot++) {
            append(place_at(hash(old[i].keys[slot]), level), level, old[i].keys[slot], old[i].rows[slot]);
        }
    }
    levels_[shard] = static_cast<uint8_t>(level);
    limits_[shard] = limit_at(shard, level);
    num_buckets_ += size_t{1} << old_level;
    left_.push_back({shard, old_level});
    growth_ns_ += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count());
}

void ShardIndex::open_level(unsigned level) {
    const size_t begin = level_bytes(level);
    region_.commit(begin, 2 * begin);
    region_.use_huge_pages(begin, 2 * begin, begin >= kHugeLevelBytes);
    num_levels_ = level + 1;
}

void ShardIndex::release_left() {
    for (const Left& one : left_) release_left(one.shard, one.level);
    left_.clear();
}

// Gives pages of an old level back once no shard in them is left there.
void ShardIndex::release_left(unsigned shard, unsigned level) {
    const size_t shard_bytes = sizeof(Bucket) << level;
    const size_t page = level_bytes(level) >= kHugeLevelBytes ? kHugePage : page_bytes();
    const auto shards_per_page = static_cast<unsigned>(std::max<size_t>(1, page / shard_bytes));
    const unsigned first = shard / shards_per_page * shards_per_page;
    for (unsigned other = first; other < std::min(first + shards_per_page, kNumShards); other++) {
        if (levels_[other] <= level) return;
    }
    const size_t begin = first_at(first, level) * sizeof(Bucket);
    region_.release(begin, begin + std::max(page, shard_bytes));
}

void ShardIndex::prepare_growth(unsigned shard, size_t num_keys) {
    const unsigned level = levels_[shard] + 1u;
    if (counts_[shard] + num_keys <= limits_[shard] || prepared_[shard] >= level || level > kMaxLevel) return;
    // Small pages come fast enough when they are touched, and huge ones come whole: for many shards at once.
    if (level_bytes(level) < kHugeLevelBytes) return;
    if (level >= num_levels_) open_level(level);
    prepared_[shard] = static_cast<uint8_t>(level);
    const size_t begin = first_at(shard, level) * sizeof(Bucket), end = begin + (sizeof(Bucket) << level);
    std::vector<bool>& pages = prepared_pages_[level];
    pages.resize(level_bytes(level) / kHugePage);
    for (size_t page = begin / kHugePage; page * kHugePage < end; page++) {
        const size_t number = page - level_bytes(level) / kHugePage;
        if (pages[number]) continue;
        region_.populate(std::max(begin, page * kHugePage), std::min(end, (page + 1) * kHugePage));
        pages[number] = true;
    }
}

}  // namespace geartrain
