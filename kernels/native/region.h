// Memory that grows without moving: address space is reserved once and committed in steps, pages come when touched.
#pragma once

#include <cstddef>

namespace geartrain {

class Region {
public:
    // Reserves as much address space as the machine has memory, at most `max_bytes`.
    explicit Region(size_t max_bytes);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    char* data() const { return data_; }

    // Makes [0, bytes) usable; new bytes are zero. Throws std::length_error when that is more than was reserved, and
    // std::bad_alloc when the machine refuses.
    void ensure(size_t bytes) {
        if (bytes > committed_) commit(bytes);
    }

private:
    void commit(size_t bytes);

    char* data_ = nullptr;
    char* mapping_ = nullptr;
    size_t reserved_ = 0;
    size_t committed_ = 0;
};

}  // namespace geartrain
