#include "table_stress.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "expect.h"
#include "random.h"
#include "table_state.h"
#include "traffic.h"

namespace geartrain::stress {

static constexpr size_t kLeastCuts = 4;
static constexpr size_t kPullThreads = 5;  // with one that applies, one that cuts and one that reads statistics: eight

static const char* const kOptimizers[] = {"sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"};
static const char* const kDtypes[] = {"fp32", "fp16", "bf16"};
static const char* const kAdmissions[] = {"always", "probability", "count"};
static const char* const kExpiries[] = {"never", "unseen", "score"};

std::string TableCase::name() const {
    std::string text = std::string(kOptimizers[static_cast<int>(optimizer)]) + " " +
                       kDtypes[static_cast<int>(dtype)] + " dim " + std::to_string(dim) + ", admission " +
                       kAdmissions[static_cast<int>(life.admission)] + ", expiry " +
                       kExpiries[static_cast<int>(life.expiry)] + ", ";
    if (life.max_rows == 0) {
        text += "no limit";
    } else {
        text += std::string(life.eviction == Eviction::kLru ? "lru" : "lfu") + " of " + std::to_string(life.max_rows);
    }
    return text + (narrow ? ", three shards" : "");
}

// Readers share it. One who wants it alone keeps new readers out, told by a flag that orders nothing: the sanitizer must
// see no other order between threads than the lock's own.
class ReadWriteLock {
public:
    void lock() {
        num_waiting_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        num_waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    void unlock() { mutex_.unlock(); }
    void lock_shared() {
        while (num_waiting_.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
        mutex_.lock_shared();
    }
    void unlock_shared() { mutex_.unlock_shared(); }

private:
    std::shared_mutex mutex_;
    std::atomic<int> num_waiting_{0};
};

static Coefficients numbers(Random& random) {
    const float bound = random.one_in(2) ? HUGE_VALF : 2.0f, divisor = random.one_in(2) ? 4.0f : 3.0f;
    return coefficients(CoefficientArray{divisor, 0.01f, 0.05f, 0.1f, 0.001f, 1.0f, 1e-8f, 0.001f, 1.0f, 1.0f, 0.05f,
                                         -bound, bound, random.one_in(2) ? 1.0f : 4.0f});
}

// The table under test, and a twin that sees the same windows with one thread and without cuts or growth ahead of time.
class TableRun {
public:
    explicit TableRun(const TableCase& table_case)
        : case_(table_case),
          value_bytes_(table_case.dim * (table_case.dtype == RowDtype::kFp32 ? 4 : 2)),
          initializer_(table_case.seed % 2 == 0 ? Initializer::Kind::kUniform : Initializer::Kind::kNormal, 0.1,
                       table_case.seed),
          table_(make()),
          twin_(make()),
          traffic_(table_case.seed, table_case.dim, table_case.narrow) {}

    void run() {
        std::vector<std::thread> threads;
        threads.emplace_back([this] { apply_windows(); });
        threads.emplace_back([this] { take_cuts(); });
        threads.emplace_back([this] { read_statistics(); });
        for (size_t i = 0; i < kPullThreads; i++) threads.emplace_back([this, i] { pull_rows(Random(case_.seed + i)); });
        for (std::thread& thread : threads) thread.join();
        check_restored();
        std::printf("  %s: %" PRIu32 " windows, %zu pulls, %zu cuts, %zu abandoned; %zu rows, %zu born, %zu rejected, "
                    "%zu evicted, %zu expired\n",
                    case_.name().c_str(), version_, num_pulls_.load(), num_cuts_.load(), num_abandoned_, table_->num_rows(),
                    num_admitted_, num_rejected_, num_evicted_, num_expired_);
        std::fflush(stdout);
    }

private:
    std::unique_ptr<RowStore> make() const {
        return std::make_unique<RowStore>(case_.dim, case_.optimizer, case_.dtype, initializer_, case_.life);
    }

    // As a server does: memory for what may be born without a lock, then the window and its sweep alone.
    void apply_windows() {
        Random random(case_.seed + 100);
        const auto goes_on = [this](size_t i) {
            return i < case_.num_windows || (i < 3 * case_.num_windows && num_cuts_.load(std::memory_order_relaxed) < kLeastCuts);
        };
        for (size_t i = 0; goes_on(i); i++) {
            for (size_t turns = random.below(6); turns > 0; turns--) std::this_thread::yield();
            const std::vector<Push> pushes = traffic_.window();
            size_t num_keys = 0;
            for (const Push& push : pushes) num_keys += push.keys.size();
            if (!random.one_in(4)) table_->prepare_growth(random.one_in(4) ? num_keys / 3 : num_keys);
            const std::unique_lock lock(lock_);
            version_++;
            apply(*table_, *twin_, pushes, numbers(random), 1 + random.below(2));
            sweep(random);
        }
        done_.store(true, std::memory_order_relaxed);
    }

    void apply(RowStore& table, RowStore& twin, const std::vector<Push>& pushes, const Coefficients& coefficients,
               size_t num_threads) {
        const LifeCounts counts =
            table.apply(contributions(pushes), coefficients, version_, static_cast<unsigned>(num_threads));
        const LifeCounts same = twin.apply(contributions(pushes), coefficients, version_, 1);
        EXPECT(counts.num_admitted == same.num_admitted && counts.num_rejected == same.num_rejected &&
                   counts.num_evicted == same.num_evicted,
               "version %u: %zu born, %zu rejected, %zu evicted, the twin has %zu, %zu, %zu", version_,
               counts.num_admitted, counts.num_rejected, counts.num_evicted, same.num_admitted, same.num_rejected,
               same.num_evicted);
        num_admitted_ += counts.num_admitted;
        num_rejected_ += counts.num_rejected;
        num_evicted_ += counts.num_evicted;
    }

    void sweep(Random& random) {
        if (random.one_in(3)) return;
        const auto first = static_cast<unsigned>(random.below(kNumShards));
        const auto last = static_cast<unsigned>(first + random.below(kNumShards - first + 1));
        const uint32_t unseen_before = version_ > 4 ? version_ - 4 : 0;
        const size_t num_expired = table_->expire(first, last, unseen_before);
        const size_t same = twin_->expire(first, last, unseen_before);
        EXPECT(num_expired == same, "version %u: %zu expired, the twin has %zu", version_, num_expired, same);
        num_expired_ += num_expired;
    }

    void pull_rows(Random random) {
        std::vector<float> rows, expected;
        std::vector<int64_t> numbers;
        while (!done_.load(std::memory_order_relaxed)) {
            const std::vector<uint64_t> keys = traffic_.pull(random, case_.num_windows);
            rows.assign(keys.size() * case_.dim, -1.0f);
            expected.assign(rows.size(), -2.0f);
            numbers.resize(keys.size());
            const std::shared_lock lock(lock_);
            table_->pull(keys.data(), keys.size(), rows.data());
            twin_->pull(keys.data(), keys.size(), expected.data());
            EXPECT(same_bits(rows, expected), "version %u: pulled rows are not those of the version", version_);
            if (random.one_in(4)) {
                table_->lookup(keys.data(), keys.size(), numbers.data());
                bool any = false;
                for (const int64_t number : numbers) any |= number >= 0;
                EXPECT(any == table_->has_any(keys.data(), keys.size()), "lookup and has_any disagree");
            }
            num_pulls_.fetch_add(1, std::memory_order_relaxed);
        }
    }

    void read_statistics() {
        while (!done_.load(std::memory_order_relaxed)) {
            {
                const std::shared_lock lock(lock_);
                size_t total = 0;
                for (unsigned shard = 0; shard < kNumShards; shard++) {
                    const size_t num_rows = table_->num_rows(shard);
                    EXPECT(num_rows <= case_.life.limit(shard), "shard %u has %zu rows", shard, num_rows);
                    total += num_rows;
                }
                EXPECT(total == table_->num_rows(), "shards have %zu rows, the table %zu", total, table_->num_rows());
                EXPECT(table_->memory_bytes() >= total * value_bytes_, "%zu bytes", table_->memory_bytes());
                check_hottest(table_->hottest());
                (void)table_->longest_growth_ns();
            }
            std::this_thread::yield();
        }
    }

    void check_hottest(const std::vector<HottestRows::Row>& hottest) const {
        EXPECT(hottest.size() <= HottestRows::kMost, "%zu rows", hottest.size());
        for (size_t i = 0; i < hottest.size(); i++) {
            EXPECT(i == 0 || hottest[i - 1].shows >= hottest[i].shows, "the hottest rows are not in order");
            EXPECT(table_->has_any(&hottest[i].key, 1), "key %" PRIx64 " is hot, and has no row", hottest[i].key);
        }
    }

    // What is told of the hottest rows is what they were shown.
    void check_shows(const TableState& state) const {
        for (const HottestRows::Row& row : table_->hottest()) {
            const size_t i = std::find(state.keys.begin(), state.keys.end(), row.key) - state.keys.begin();
            EXPECT(i < state.keys.size(), "key %" PRIx64 " is hot, and has no row", row.key);
            EXPECT(row.shows == state.statistics[2 * i], "key %" PRIx64 " was shown %g times, told are %g", row.key,
                   static_cast<double>(state.statistics[2 * i]), static_cast<double>(row.shows));
        }
    }

    // Full cuts and deltas, read a few shards at a time while windows go on, and compared with what the twin was.
    void take_cuts() {
        Random random(case_.seed + 200);
        while (!done_.load(std::memory_order_relaxed)) {
            TableState expected, found;
            std::optional<uint32_t> base;
            {
                const std::unique_lock lock(lock_);
                if (!random.one_in(3)) base = table_->delta_base();
                table_->begin_cut(version_, base);
                twin_->begin_cut(version_, std::nullopt);
                expected.read(*twin_, 0, kNumShards, value_bytes_);
                twin_->end_cut();
                check_shows(expected);
            }
            const bool is_abandoned = random.one_in(6);
            const unsigned stop = is_abandoned ? static_cast<unsigned>(random.below(kNumShards)) : kNumShards;
            for (unsigned first = 0; first < stop;) {
                const auto last = std::min(stop, static_cast<unsigned>(first + 1 + random.below(400)));
                {
                    const std::shared_lock lock(lock_);
                    found.read(*table_, first, last, value_bytes_);
                }
                first = last;
                for (size_t turns = random.below(6); turns > 0; turns--) std::this_thread::yield();
            }
            if (!random.one_in(4)) {  // else the next one ends it
                const std::unique_lock lock(lock_);
                table_->end_cut();
            }
            if (is_abandoned) {
                num_abandoned_++;
                if (!base) base_.reset();
            } else {
                check_cut(expected, found, base.has_value());
            }
        }
    }

    void check_cut(const TableState& expected, const TableState& found, bool is_delta) {
        num_cuts_.fetch_add(1, std::memory_order_relaxed);
        if (!is_delta) {
            const char* what = difference(expected, found);
            EXPECT(what == nullptr, "a full cut has other %s than the table had", what);
            EXPECT(found.deleted.empty(), "a full cut has deleted keys");
            base_ = std::make_unique<TableState>(found);
            return;
        }
        EXPECT(same_bits(expected.sketches, found.sketches) && same_bits(expected.totals, found.totals),
               "a delta has other sketches than the table had");
        if (base_ == nullptr) return;  // the full cut was abandoned
        auto rows = base_->by_key(value_bytes_, table_->state_width());
        const auto all = expected.by_key(value_bytes_, table_->state_width());
        for (const uint64_t key : found.deleted) {
            EXPECT(all.count(key) == 0, "key %" PRIx64 " is told as deleted, and has a row", key);
            rows.erase(key);
        }
        for (auto& [key, row] : found.by_key(value_bytes_, table_->state_width())) rows[key] = row;
        EXPECT(rows.size() == all.size(), "base and delta have %zu rows, the table had %zu", rows.size(), all.size());
        for (const auto& [key, row] : all) {
            const auto one = rows.find(key);
            EXPECT(one != rows.end(), "key %" PRIx64 " is missing in base and delta", key);
            EXPECT(one->second == row, "key %" PRIx64 " is another in base and delta", key);
        }
    }

    // A table that was loaded from a cut goes on exactly as the one that was cut.
    void check_restored() {
        TableState state;
        twin_->begin_cut(version_, std::nullopt);
        state.read(*twin_, 0, kNumShards, value_bytes_);
        twin_->end_cut();
        std::unique_ptr<RowStore> restored = make();
        restored->load(state.records());
        for (unsigned shard = 0; restored->sketch_bytes() != 0 && shard < kNumShards; shard++) {
            restored->load_sketch(shard, state.sketches.data() + shard * restored->sketch_bytes(), state.totals[shard]);
        }
        Random random(case_.seed + 300);
        for (size_t i = 0; i < 3; i++) {
            version_++;
            apply(*restored, *table_, traffic_.window(), numbers(random), 2);
        }
        TableState after, expected;
        for (RowStore* store : {restored.get(), table_.get()}) {
            store->begin_cut(version_, std::nullopt);
            (store == table_.get() ? expected : after).read(*store, 0, kNumShards, value_bytes_);
            store->end_cut();
        }
        const char* what = difference(expected, after);
        EXPECT(what == nullptr, "after a restore the table has other %s", what);
    }

    const TableCase case_;
    const size_t value_bytes_;
    const Initializer initializer_;
    const std::unique_ptr<RowStore> table_, twin_;
    Traffic traffic_;
    ReadWriteLock lock_;
    uint32_t version_ = 0;  // under the lock
    std::atomic<bool> done_{false};
    std::atomic<size_t> num_pulls_{0};
    std::atomic<size_t> num_cuts_{0};
    size_t num_abandoned_ = 0;                                                        // of the thread that cuts
    size_t num_admitted_ = 0, num_rejected_ = 0, num_evicted_ = 0, num_expired_ = 0;  // of the thread that applies
    std::unique_ptr<TableState> base_;
};

void stress_table(const TableCase& table_case) { TableRun(table_case).run(); }

}  // namespace geartrain::stress
