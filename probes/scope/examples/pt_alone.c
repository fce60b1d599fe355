/* libipt's block decoder alone, as a C program uses it: what decoding Intel PT costs at least. A peer of `pt_cost.rs`.
 *
 * pt_alone TRACE ELF OFFSET SIZE ADDRESS FAMILY MODEL STEPPING
 *
 * Prints ns an instruction, the median of passes that each begin anew; what is remembered of the code stays.
 */
#include <intel-pt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PASSES = 31 };

static void must(int status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "%s: %s\n", what, pt_errstr(pt_errcode(status)));
		exit(1);
	}
}

/* The packets, and how many bytes they are. */
static uint8_t *packets(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes = malloc(64 << 20);

	if (!file || !bytes) {
		perror(path);
		exit(1);
	}
	*size = fread(bytes, 1, 64 << 20, file);
	fclose(file);
	return bytes;
}

/* Decodes everything; how many instructions there are. */
static uint64_t decode(const struct pt_config *config, struct pt_image *image)
{
	struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
	uint64_t instructions = 0;
	int status;

	if (!decoder) {
		fprintf(stderr, "no memory\n");
		exit(1);
	}
	must(pt_blk_set_image(decoder, image), "image");
	status = pt_blk_sync_forward(decoder);
	while (status >= 0) {
		while (status >= 0 && (status & pts_event_pending)) {
			struct pt_event event;

			status = pt_blk_event(decoder, &event, sizeof(event));
		}
		if (status >= 0 && !(status & pts_eos)) {
			struct pt_block block;

			status = pt_blk_next(decoder, &block, sizeof(block));
			instructions += block.ninsn;
		} else if (status >= 0) {
			break;
		}
		if (status < 0 && status != -pte_eos)
			status = pt_blk_sync_forward(decoder);
	}
	pt_blk_free_decoder(decoder);
	return instructions;
}

static int lesser(const void *left, const void *right)
{
	double one = *(const double *)left, other = *(const double *)right;

	return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
	struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
	struct pt_image *image = pt_image_alloc(NULL);
	struct pt_config config;
	double times[PASSES];
	size_t size;
	int section;

	if (argc != 9) {
		fprintf(stderr, "usage: %s TRACE ELF OFFSET SIZE ADDRESS FAMILY MODEL STEPPING\n", argv[0]);
		return 2;
	}
	pt_config_init(&config);
	config.begin = packets(argv[1], &size);
	config.end = config.begin + size;
	config.cpu.vendor = pcv_intel;
	config.cpu.family = (uint16_t)atoi(argv[6]);
	config.cpu.model = (uint8_t)atoi(argv[7]);
	config.cpu.stepping = (uint8_t)atoi(argv[8]);
	must(pt_cpu_errata(&config.errata, &config.cpu), "errata");
	must(pt_iscache_set_limit(cache, 1 << 30), "cache");
	section = pt_iscache_add_file(cache, argv[2], strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0),
				      strtoull(argv[5], NULL, 0));
	must(section, argv[2]);
	must(pt_image_add_cached(image, cache, section, NULL), argv[2]);
	for (int pass = 0; pass < PASSES; pass++) {
		struct timespec begun, ended;
		uint64_t instructions;

		clock_gettime(CLOCK_MONOTONIC, &begun);
		instructions = decode(&config, image);
		clock_gettime(CLOCK_MONOTONIC, &ended);
		times[pass] = ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) /
			      (double)instructions;
		if (pass == 0)
			printf("instructions\t%llu\n", (unsigned long long)instructions);
	}
	qsort(times, PASSES, sizeof(times[0]), lesser);
	printf("from C\t%.3f\n", times[PASSES / 2]);
	pt_image_free(image);
	pt_iscache_free(cache);
	return 0;
}
