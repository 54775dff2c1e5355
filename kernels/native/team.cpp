#include "team.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

namespace geartrain {

Team& Team::of_process() {
    static Team& team = *new Team;  // never destroyed: its helpers wait in it until the process ends
    return team;
}

Team::Team() : process_(getpid()) {}

void Team::run(size_t size, const std::function<void(size_t)>& work) {
    std::unique_lock<std::mutex> use(in_use_, std::defer_lock);
    size_t num_helpers = 0;
    if (size > 1 && getpid() == process_ && use.try_lock()) {
        num_helpers = hire(size - 1);
        const std::lock_guard<std::mutex> lock(mutex_);
        work_ = &work;
        num_calls_ = num_running_ = num_helpers;
        generation_++;
        begun_.notify_all();
    }
    work(0);
    for (size_t part = num_helpers + 1; part < size; part++) work(part);
    if (num_helpers == 0) return;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return num_running_ == 0; });
}

// How many helpers there are, at most as many as asked for.
size_t Team::hire(size_t num_helpers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
        for (; num_hired_ < num_helpers; num_hired_++) std::thread(&Team::serve, this, num_hired_ + 1).detach();
    } catch (const std::system_error&) {
        // The work is done by those that there are.
    }
    return std::min(num_helpers, num_hired_);
}

void Team::serve(size_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (size_t seen = 0;;) {
        begun_.wait(lock, [&] { return generation_ != seen && number <= num_calls_; });
        seen = generation_;
        const std::function<void(size_t)>& work = *work_;
        lock.unlock();
        work(number);
        lock.lock();
        if (--num_running_ == 0) done_.notify_one();
    }
}

}  // namespace geartrain
