/* Calls along random paths: nearly every walk makes contexts that no walk before it made. `paths CALLS`: at a line on
   stdin it makes so many calls, says so, and waits for the end of stdin. */
#include <stdio.h>
#include <stdlib.h>

#define DEEP 5
#define ROW(X, a) X(a##0) X(a##1) X(a##2) X(a##3) X(a##4) X(a##5) X(a##6) X(a##7)
#define ALL(X) ROW(X, f0) ROW(X, f1) ROW(X, f2) ROW(X, f3) ROW(X, f4) ROW(X, f5) ROW(X, f6) ROW(X, f7)

static unsigned long state = 88172645463325252ul;
static unsigned draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 32 & 63;
}

static void (*const all[64])(int);
#define FUNCTION(name)                                                              \
    __attribute__((noinline, noclone)) static void name(int depth) {                \
        if (depth > 1) all[draw()](depth - 1);                                      \
        __asm__ volatile("" ::: "memory");                                          \
    }
ALL(FUNCTION)
#define POINTER(name) name,
static void (*const all[64])(int) = {ALL(POINTER)};

int main(int count, char **values) {
    long calls = count > 1 ? atol(values[1]) : 1000000;
    getchar();
    for (long at = 0; at < calls; at += DEEP) all[draw()](DEEP);
    puts("done");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
