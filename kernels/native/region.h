// A range of address space that never moves: reserved once, made usable and given back piece by piece, and zero where
// it is new.
#pragma once

#include <cstddef>

namespace geartrain {

// The system's small page: 4 KiB on x86-64, up to 64 KiB elsewhere.
size_t page_bytes();

constexpr size_t kHugePage = size_t{2} << 20;

class Region {
public:
    // Reserves as much address space as the machine has memory times `share`, at most `max_bytes`. Throws
    // std::bad_alloc when the machine refuses.
    explicit Region(size_t max_bytes, size_t share = 1);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    char* data() const { return data_; }

    // Makes [begin, end) usable, whole pages; pages come when they are touched. Throws std::length_error beyond what
    // was reserved, std::bad_alloc when the machine refuses.
    void commit(size_t begin, size_t end);

    // Asks for huge pages in [begin, end) of what was committed, or for small ones. A machine without huge pages
    // refuses, and that is fine.
    void use_huge_pages(size_t begin, size_t end, bool huge);

    // Has the pages of [begin, end) at hand, so that the first touch of them does not wait. Nobody may use them yet.
    void populate(size_t begin, size_t end);

    // Gives the memory of [begin, end) back; it reads as zero from then on.
    void release(size_t begin, size_t end);

private:
    char* data_ = nullptr;
    char* mapping_ = nullptr;
    size_t reserved_ = 0;
};

}  // namespace geartrain
