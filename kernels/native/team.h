// Threads of this process that share the work of one call. They are kept, because the system places a fresh thread
// beside its maker often enough that both take turns on one core for as long as a window lasts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

namespace geartrain {

class Team {
public:
    static Team& of_process();

    // Calls work(0), ..., work(num_parts - 1) and returns when all have returned; `work` must not throw. Up to
    // `num_threads` threads, this one among them, each take the next part that nobody has: who wakes late, or is put
    // aside by the system, has less of the work, and nobody waits for more than a part. While another caller has the
    // team, or where the system has no thread to give, this thread does all.
    void run(size_t num_threads, size_t num_parts, const std::function<void(size_t)>& work);

private:
    Team();
    void serve(size_t number);
    size_t hire(size_t num_helpers);
    void take_parts(const std::function<void(size_t)>& work);

    const int process_;  // a forked child has no helpers
    std::mutex in_use_;  // held by the caller that has the team
    std::mutex mutex_;   // of all that follows; atomic ones are also read without it
    std::condition_variable begun_, done_;
    size_t num_hired_ = 0;
    const std::function<void(size_t)>* work_ = nullptr;  // null between calls
    size_t num_welcome_ = 0;                             // helpers with numbers up to it take part
    size_t num_parts_ = 0;
    std::atomic<size_t> next_part_{0};
    std::atomic<size_t> num_begun_{0};    // calls so far
    std::atomic<size_t> num_running_{0};  // helpers at work
};

}  // namespace geartrain
