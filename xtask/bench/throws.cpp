// The target of the bench for functions that an exception may pass: no return probe is safe in them.
//
// It reads and prints what target.c does, for the one function `throwing_site`.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

static uint64_t now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static int quiet(int number) { return number + 1; }
static int loud(int number) { throw number; }
static int (*volatile callee)(int) = quiet;

extern "C" __attribute__((noinline, noclone)) int throwing_site(int number)
{
	int sum = callee(number);
	__asm__ volatile("" : "+r"(sum));
	return sum + number;
}

int main()
{
	char line[128];
	unsigned long long count;
	setvbuf(stdout, nullptr, _IOLBF, 0);
	printf("throwing_site %p\nready\n", reinterpret_cast<void *>(throwing_site));
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "call throwing_site %llu", &count) != 1)
			return 1;
		callee = loud;
		try {
			throwing_site(1);
		} catch (int) {
		}
		callee = quiet;
		uint64_t start = now();
		for (uint64_t i = 0; i < count; i++)
			throwing_site(static_cast<int>(i));
		printf("%llu\n", static_cast<unsigned long long>(now() - start));
	}
}
