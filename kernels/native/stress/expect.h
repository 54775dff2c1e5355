// What must hold during a stress run: a broken expectation is named, with its place and facts, and ends the run.
#pragma once

#include <cstdio>
#include <cstdlib>

#define EXPECT(condition, ...)                                                   \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::fprintf(stderr, "    " __VA_ARGS__);                            \
            std::fputc('\n', stderr);                                            \
            std::abort();                                                        \
        }                                                                        \
    } while (false)
