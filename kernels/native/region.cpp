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

size_t page_bytes() {
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

Region::Region(size_t max_bytes, size_t share) {
    const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes();
    reserved_ = round_up(std::min(max_bytes, memory * share), kHugePage);
    void* mapping = mmap(nullptr, reserved_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<char*>(mapping);
    data_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(mapping), kHugePage));
}

Region::~Region() { munmap(mapping_, reserved_ + kHugePage); }

void Region::commit(size_t begin, size_t end) {
    if (end > reserved_) throw std::length_error("the reserved address space is full");
    begin = begin / page_bytes() * page_bytes();
    const size_t bytes = round_up(end, page_bytes()) - begin;
    if (mprotect(data_ + begin, bytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

void Region::use_huge_pages([[maybe_unused]] size_t begin, [[maybe_unused]] size_t end, [[maybe_unused]] bool huge) {
#ifdef MADV_HUGEPAGE
    madvise(data_ + begin, end - begin, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
}

void Region::populate(size_t begin, size_t end) {
#ifdef MADV_POPULATE_WRITE
    const size_t first = begin / page_bytes() * page_bytes();
    if (madvise(data_ + first, round_up(end, page_bytes()) - first, MADV_POPULATE_WRITE) == 0) return;
#endif
    // Only pages that begin inside the range may be written to: what is before it in a page may be in use.
    for (size_t at = round_up(begin, page_bytes()); at < end; at += page_bytes()) {
        *static_cast<volatile char*>(data_ + at) = 0;
    }
}

void Region::release(size_t begin, size_t end) { madvise(data_ + begin, end - begin, MADV_DONTNEED); }

}  // namespace geartrain
