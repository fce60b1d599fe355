/* The target of the bench: functions whose first instructions are known to the byte, called on demand.
 *
 * It prints where they are, then reads lines:
 *   call NAME COUNT        calls it COUNT times and prints the ns that took
 *   rate NAME HZ MS        calls it HZ times a second for MS milliseconds and prints the number of calls
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FUNCTION(name, body)                                                                       \
	__asm__(".text\n.p2align 6\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"      \
		".cfi_startproc\n" body "ret\n.cfi_endproc\n.size " #name ", .-" #name "\n");         \
	int name(int)

#define FRAME                                                                                      \
	"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6, -16\nmov %rsp, %rbp\n"                    \
	"lea 1(%rdi), %eax\npop %rbp\n.cfi_def_cfa_offset 8\n"

FUNCTION(push_site, FRAME);
FUNCTION(nop5_site, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\nlea 1(%rdi), %eax\n");
FUNCTION(endbr_site, "endbr64\n" FRAME);
FUNCTION(mov_site, "mov %edi, %edx\n" FRAME);
FUNCTION(lea_site, "lea 2(%rdi), %ecx\n" FRAME);
FUNCTION(dear_site, "lea 1(%rdi), %eax\n");

static const struct {
	const char *name;
	int (*function)(int);
} functions[] = {
	{ "push_site", push_site }, { "nop5_site", nop5_site }, { "endbr_site", endbr_site },
	{ "mov_site", mov_site },   { "lea_site", lea_site },	{ "dear_site", dear_site },
};

enum { COUNT = sizeof functions / sizeof *functions };

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static int (*find(const char *name))(int)
{
	for (int i = 0; i < COUNT; i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return 0;
}

static uint64_t call(int (*volatile function)(int), uint64_t count)
{
	uint64_t start = now();
	for (uint64_t i = 0; i < count; i++)
		function((int)i);
	return now() - start;
}

/* As many calls as the time that has passed asks for, in portions: a late start is caught up. */
static uint64_t rate(int (*volatile function)(int), uint64_t hz, uint64_t ms)
{
	uint64_t start = now(), end = start + ms * 1000000, done = 0;
	for (uint64_t t = start; t < end; t = now()) {
		uint64_t due = (t - start) * hz / 1000000000;
		if (due == done) {
			struct timespec nap = { 0, 200000 };
			nanosleep(&nap, 0);
		}
		for (; done < due; done++)
			function((int)done);
	}
	return done;
}

int main(void)
{
	char line[128], word[16], name[32];
	unsigned long long first, second;
	setvbuf(stdout, 0, _IOLBF, 0);
	for (int i = 0; i < COUNT; i++)
		printf("%s %p\n", functions[i].name, (void *)functions[i].function);
	printf("ready\n");
	while (fgets(line, sizeof line, stdin)) {
		int words = sscanf(line, "%15s %31s %llu %llu", word, name, &first, &second);
		int (*function)(int) = words >= 3 ? find(name) : 0;
		if (!function)
			return 1;
		printf("%llu\n", (unsigned long long)(words == 3 ? call(function, first) : rate(function, first, second)));
	}
	return 0;
}
