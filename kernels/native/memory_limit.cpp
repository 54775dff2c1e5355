// What memory allows at best: random reads and updates of whole cache lines whose numbers are known, nothing else.
#include "arrays.h"

namespace geartrain {

constexpr size_t kWords = 8;

template <bool kForWriting, typename Line, typename Work>
static void walk(Line* lines, Vector<const int64_t> numbers, size_t distance, Work work) {
    const int64_t* number = numbers.data();
    const size_t size = numbers.shape(0);
    const size_t far = distance < size ? size - distance : 0;
    size_t i = 0;
    for (; i < far; i++) {
        __builtin_prefetch(lines + number[i + distance] * kWords, kForWriting);
        work(lines + number[i] * kWords);
    }
    for (; i < size; i++) work(lines + number[i] * kWords);
}

static uint64_t read_lines(Matrix<const uint64_t> lines, Vector<const int64_t> numbers, size_t distance) {
    uint64_t sums[kWords] = {};
    walk<false>(lines.data(), numbers, distance, [&](const uint64_t* line) {
        for (size_t word = 0; word < kWords; word++) sums[word] += line[word];
    });
    uint64_t total = 0;
    for (uint64_t sum : sums) total += sum;
    return total;
}

static void add_to_lines(Matrix<uint64_t> lines, Vector<const int64_t> numbers, size_t distance) {
    walk<true>(lines.data(), numbers, distance, [](uint64_t* line) {
        for (size_t word = 0; word < kWords; word++) line[word]++;
    });
}

void bind_memory_limit(nb::module_& module) {
    module.def("read_lines", &read_lines, array_argument("lines"), array_argument("numbers"), nb::arg("distance"),
               WithoutGil());
    module.def("add_to_lines", &add_to_lines, array_argument("lines"), array_argument("numbers"), nb::arg("distance"),
               WithoutGil());
}

}  // namespace geartrain
