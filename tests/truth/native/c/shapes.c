// Functions of many shapes, each with a mark that counts its calls. What stands behind `//=` is what has to come of a
// function that no call of its own is seen of.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NI __attribute__((noinline, noclone, noipa))

static struct { const char *name; unsigned long calls; } marks[64];
NI void hit(const char *name) {
    int at = 0;
    while (marks[at].name && strcmp(marks[at].name, name)) at++;
    marks[at].name = name;
    marks[at].calls++;
}

typedef int (*op)(int);
struct shop { op price; int stock; };

NI static int own(int n) { hit("own"); return n + 1; }
NI int shared(int n) { hit("shared"); return own(n) + own(n); }
NI int knr(n) int n; { hit("knr"); return n; }
NI static int by_pointer(int n) { hit("by_pointer"); return n * 2; }
NI static int recursive(int n) { hit("recursive"); return n < 2 ? 1 : recursive(n - 1) + recursive(n - 2); }
NI static int is_odd(int n);
NI static int is_even(int n) { hit("is_even"); return n == 0 || is_odd(n - 1); }
NI static int is_odd(int n) { hit("is_odd"); return n != 0 && is_even(n - 1); }
static inline __attribute__((always_inline)) int put_in(int n) { hit("put_in"); return n + 3; } //= not-visible inlined
NI static int never(int n) { hit("never"); return n; } //= never-ran
static int unused(int n) { hit("unused"); return n; } //= not-in-build no-code
NI static void variadic(int n, ...) { hit("variadic"); (void)n; }
NI static struct shop large(struct shop it) { hit("large"); it.stock += 1; return it; }
static jmp_buf back;
NI static void leaps(void) { hit("leaps"); longjmp(back, 1); }
NI static int compare(const void *a, const void *b) { hit("compare"); return *(const int *)a - *(const int *)b; }
#define MADE(name) NI static int name(int n) { hit(#name); return n; }
__attribute__((constructor)) NI static void before_main(void) { hit("before_main"); }
NI static int //: over_lines
over_lines(int a,
           int b) {
    hit("over_lines"); return a + b;
}
NI static int with_nested_names(int own) { hit("with_nested_names"); return own; }

int main(int count, char **values) { hit("main");
    struct shop it = {by_pointer, 1};
    int sum = shared(1) + knr(2) + it.price(3) + recursive(5) + is_even(4) + put_in(1) + over_lines(1, 2);
    if (count > 9) sum += never(1);
    variadic(1, 2, 3);
    it = large(it);
    if (!setjmp(back)) leaps();
    int list[] = {3, 1, 2};
    qsort(list, 3, sizeof *list, compare);
    sum += with_nested_names(it.stock);
    for (int at = 0; marks[at].name; at++) printf("%s %lu\n", marks[at].name, marks[at].calls);
    return sum == 0 || values == 0;
}
