#include "region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace geartrain {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargestStep = size_t{64} << 20;

static size_t round_up(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

Region::Region(size_t max_bytes) {
    const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    reserved_ = round_up(std::min(max_bytes, memory));
    void* mapping = mmap(nullptr, reserved_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<char*>(mapping);
    data_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(mapping)));
}

Region::~Region() { munmap(mapping_, reserved_ + kHugePage); }

void Region::commit(size_t bytes) {
    if (bytes > reserved_) throw std::length_error("the reserved address space is full");
    const size_t step = std::clamp(committed_, kHugePage, kLargestStep);
    const size_t target = std::min(reserved_, std::max(round_up(bytes), committed_ + step));
    if (mprotect(data_ + committed_, target - committed_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    // A small table must not cost a huge page, so the first one is only asked for once the region outgrows it. A
    // kernel without huge pages refuses the advice, and that is fine.
    if (committed_ == 0) {
        madvise(data_, kHugePage, MADV_NOHUGEPAGE);
        if (target > kHugePage) madvise(data_ + kHugePage, target - kHugePage, MADV_HUGEPAGE);
    } else {
        madvise(data_, target, MADV_HUGEPAGE);
    }
#endif
    committed_ = target;
}

}  // namespace geartrain
