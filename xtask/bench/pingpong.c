/* Two processes on one processor that answer each other over pipes: each turn is two switches. Prints the other's number, and
   for each line "turns N" how many ns those took. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static unsigned long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ul + t.tv_nsec;
}

__attribute__((noinline)) static void turn(int to, int from)
{
	char byte = 1;
	if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
		exit(1);
}

int main(void)
{
	int there[2], back[2];
	char line[64], byte;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back))
		return 1;
	int other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		return 0;
	}
	printf("other %d\n", other);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		unsigned long turns = strtoul(line + sizeof "turns", NULL, 10), begun = now_ns();
		for (unsigned long at = 0; at < turns; at++)
			turn(there[1], back[0]);
		printf("%lu\n", now_ns() - begun);
		fflush(stdout);
	}
	return 0;
}
