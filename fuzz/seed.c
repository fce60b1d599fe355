/* A small program to begin with: recursion, a jump table, a pointer table. */
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int twice(int n) { return fib(n) * 2; }
int pick(int n) { switch (n) { case 0: return twice(1); case 1: return 7; case 2: return twice(9); case 3: return 4; case 4: return fib(n); default: return -1; } }
int (*table[])(int) = { fib, twice, pick };
void _start(void) { volatile int sum = 0; for (int i = 0; i < 3; i++) sum += table[i](i); for (;;) ; }
