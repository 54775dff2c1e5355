#include "advice.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

static std::atomic<bool> refuses{false};

// Takes the place of the C library's.
extern "C" int madvise(void* begin, size_t bytes, int advice) noexcept {
#ifdef MADV_POPULATE_WRITE
    if (advice == MADV_POPULATE_WRITE && refuses.load(std::memory_order_relaxed)) {
        errno = EINVAL;
        return -1;
    }
#endif
    return static_cast<int>(syscall(SYS_madvise, begin, bytes, advice));
}

namespace geartrain::stress {

void refuse_to_populate(bool refuse) { refuses.store(refuse, std::memory_order_relaxed); }

}  // namespace geartrain::stress
