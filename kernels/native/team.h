// Threads of this process that share the work of one call. They are kept, because the system places a fresh thread
// beside its maker often enough that both take turns on one core for as long as a window lasts.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

namespace geartrain {

class Team {
public:
    static Team& of_process();

    // Calls work(0), ..., work(size - 1), the first one here, and returns when all have returned; `work` must not throw.
    // While another caller has the team, or where the system has no thread to give, all are called here.
    void run(size_t size, const std::function<void(size_t)>& work);

private:
    Team();
    void serve(size_t number);
    size_t hire(size_t num_helpers);

    const int process_;     // a forked child has no helpers
    std::mutex in_use_;     // held by the caller that has the team
    std::mutex mutex_;      // of all that follows
    std::condition_variable begun_, done_;
    size_t num_hired_ = 0;
    const std::function<void(size_t)>* work_ = nullptr;
    size_t num_calls_ = 0;  // helpers with numbers up to it take part
    size_t num_running_ = 0;
    size_t generation_ = 0;
};

}  // namespace geartrain
