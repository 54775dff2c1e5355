// The rows of a table with the most shows. Shows are counted in the rows themselves, so this is exact while they grow:
// a row that is shown is compared with the least of the hottest, which is all that it costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace geartrain {

class HottestRows {
public:
    static constexpr size_t kMost = 32;

    struct Row {
        uint64_t key;
        float shows;
    };

    // Of rows with more shows than `least` only.
    explicit HottestRows(float least = 0.0f) : least_(least), floor_(least) {}

    // Shows above which a row belongs to the hottest.
    float floor() const { return floor_; }

    const std::vector<Row>& rows() const { return rows_; }

    void offer(uint64_t key, float shows) {
        if (__builtin_expect(shows > floor_, 0)) take(key, shows);
    }
    void remove(uint64_t key) {
        const auto same = find(key);
        if (same == rows_.end()) return;
        rows_.erase(same);
        set_floor();
    }

    // The row's shows fell.
    void lower(uint64_t key, float shows) {
        const auto same = find(key);
        if (same == rows_.end()) return;
        same->shows = shows;
        set_floor();
    }

    // Hottest first, equal ones by key.
    std::vector<Row> sorted() const {
        std::vector<Row> rows = rows_;
        std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
            return a.shows != b.shows ? a.shows > b.shows : a.key < b.key;
        });
        return rows;
    }

private:
    void take(uint64_t key, float shows) {
        const auto same = find(key);
        if (same != rows_.end()) {
            same->shows = std::max(same->shows, shows);  // threads may have seen it at different times
        } else if (rows_.size() < kMost) {
            rows_.push_back({key, shows});
        } else {
            *coldest() = {key, shows};
        }
        set_floor();
    }

    std::vector<Row>::iterator find(uint64_t key) {
        return std::find_if(rows_.begin(), rows_.end(), [key](const Row& row) { return row.key == key; });
    }
    std::vector<Row>::iterator coldest() {
        return std::min_element(rows_.begin(), rows_.end(),
                                [](const Row& a, const Row& b) { return a.shows < b.shows; });
    }
    void set_floor() { floor_ = rows_.size() < kMost ? least_ : coldest()->shows; }

    std::vector<Row> rows_;
    float least_, floor_;
};

}  // namespace geartrain
