// The peer of BenchmarkGetPut: DPDK's mbufs, 32 at once from a per-core cache, one core.
//
//	gcc -O3 -march=native -o mbuf mbuf.c $(pkg-config --cflags --libs libdpdk)
//	./mbuf --no-huge -m 256 --no-pci --no-telemetry -l 0
//
// Written against DPDK 22.11. Its memory is put on transparent huge pages, as cxkit's is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

enum { BURST = 32, LIVE = 8192, ROUNDS = 2001, BURSTS = 256 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// With --no-huge the memory is a memfd's, which gets small pages: put anonymous memory on huge ones in its place.
static int huge(const struct rte_memseg_list *list, void *arg)
{
	char *copy = malloc(list->len);
	(void)arg;
	if (!copy)
		return -1;
	memcpy(copy, list->base_va, list->len);
	if (mmap(list->base_va, list->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ||
	    madvise(list->base_va, list->len, MADV_HUGEPAGE)) {
		perror("huge pages");
		return -1;
	}
	memcpy(list->base_va, copy, list->len);
	free(copy);
	return 0;
}

int main(int argc, char **argv)
{
	static struct rte_mbuf *live[LIVE], *burst[BURST];
	static double same[ROUNDS], oldest[ROUNDS];
	if (rte_eal_init(argc, argv) < 0)
		return 1;
	if (rte_memseg_list_walk(huge, NULL))
		return 1;
	struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", 16383, 256, 0, 2048 + 128, 0);
	if (!pool)
		return 1;
	for (int i = 0; i < LIVE; i += BURST)
		if (rte_pktmbuf_alloc_bulk(pool, live + i, BURST))
			return 1;
	for (int r = 0, at = 0; r < ROUNDS; r++) {
		double begin = now();
		for (int i = 0; i < BURSTS; i++) {
			if (rte_pktmbuf_alloc_bulk(pool, burst, BURST))
				return 1;
			rte_pktmbuf_free_bulk(burst, BURST);
		}
		double middle = now();
		for (int i = 0; i < BURSTS; i++) {
			rte_pktmbuf_free_bulk(live + at, BURST);
			if (rte_pktmbuf_alloc_bulk(pool, live + at, BURST))
				return 1;
			at = (at + BURST) % LIVE;
		}
		double end = now();
		same[r] = (middle - begin) / BURSTS / BURST;
		oldest[r] = (end - middle) / BURSTS / BURST;
	}
	qsort(same, ROUNDS, sizeof *same, compare);
	qsort(oldest, ROUNDS, sizeof *oldest, compare);
	printf("the ones just put %.2f ns, the oldest of %d live %.2f ns a buffer\n", same[ROUNDS / 2], LIVE, oldest[ROUNDS / 2]);
	return 0;
}
