// The peer of BenchmarkGetPut: DPDK's mbufs, 32 at once from a per-core cache, one core.
//
//	gcc -O3 -march=native -o mbuf mbuf.c $(pkg-config --cflags --libs libdpdk)
//	./mbuf --no-huge -m 256 --no-pci --no-telemetry -l 0
//
// Written against DPDK 22.11. With --no-huge the memory asks for transparent huge pages, as cxkit's does.
#include <stdio.h>
#include <stdlib.h>
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

static int huge(const struct rte_memseg_list *list, void *arg)
{
	(void)arg;
	if (madvise(list->base_va, list->len, MADV_HUGEPAGE))
		perror("no huge pages");
	return 0;
}

int main(int argc, char **argv)
{
	static struct rte_mbuf *live[LIVE], *burst[BURST];
	static double same[ROUNDS], oldest[ROUNDS];
	if (rte_eal_init(argc, argv) < 0)
		return 1;
	rte_memseg_list_walk(huge, NULL);
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
