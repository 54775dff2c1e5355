#include "team.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

namespace geartrain {

// How long a helper stays awake for the next call, and a caller for the last part. The tables of a window follow each
// other within microseconds, and a sleeper takes some 50 to come back, or is put beside the other one because it did
// little of late.
constexpr std::chrono::microseconds kAwake{100};

// Returns when `is_over` says so, or after a moment. Others that want this core have it first.
template <typename IsOver>
static void stay_awake(IsOver is_over) {
    const auto end = std::chrono::steady_clock::now() + kAwake;
    while (!is_over() && std::chrono::steady_clock::now() < end) sched_yield();
}

Team& Team::of_process() {
    static Team& team = *new Team;  // never destroyed: its helpers wait in it until the process ends
    return team;
}

Team::Team() : process_(getpid()) {}

void Team::run(size_t num_threads, size_t num_parts, const std::function<void(size_t)>& work) {
    const size_t num_helpers = num_parts > 0 ? std::min(std::max<size_t>(num_threads, 1), num_parts) - 1 : 0;
    std::unique_lock<std::mutex> use(in_use_, std::defer_lock);
    if (num_helpers == 0 || getpid() != process_ || !use.try_lock()) {
        for (size_t part = 0; part < num_parts; part++) work(part);
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const size_t num_welcome = hire(num_helpers);
        work_ = &work;
        num_welcome_ = num_welcome;
        num_parts_ = num_parts;
        next_part_ = 0;
        num_begun_++;
    }
    begun_.notify_all();
    take_parts(work);
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = nullptr;  // nobody begins any more
    lock.unlock();
    stay_awake([this] { return num_running_ == 0; });
    lock.lock();
    done_.wait(lock, [this] { return num_running_ == 0; });
}

// How many helpers there are, at most as many as asked for.
size_t Team::hire(size_t num_helpers) {
    try {
        for (; num_hired_ < num_helpers; num_hired_++) std::thread(&Team::serve, this, num_hired_ + 1).detach();
    } catch (const std::system_error&) {
        // The work is done by those that there are.
    }
    return std::min(num_helpers, num_hired_);
}

void Team::take_parts(const std::function<void(size_t)>& work) {
    const size_t num_parts = num_parts_;
    for (size_t part = next_part_++; part < num_parts; part = next_part_++) work(part);
}

void Team::serve(size_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (size_t seen = 0;;) {
        if (num_begun_ == seen) {
            lock.unlock();
            stay_awake([&] { return num_begun_ != seen; });
            lock.lock();
        }
        begun_.wait(lock, [&] { return num_begun_ != seen; });
        seen = num_begun_;
        if (work_ == nullptr || number > num_welcome_) continue;
        const std::function<void(size_t)>& work = *work_;
        num_running_++;
        lock.unlock();
        take_parts(work);
        lock.lock();
        if (--num_running_ == 0) done_.notify_one();
    }
}

}  // namespace geartrain
