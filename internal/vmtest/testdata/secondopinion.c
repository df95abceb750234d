/*
 * A second opinion on the card: rdma-core's own driver for mlx5 over VFIO (libmlx5, mlx5dv_get_vfio_device_list) brings
 * it up, makes a PD, an MR, a CQ and a QP through it, and sends a frame by an SQ.
 *
 *	secondopinion ADDRESS FRAMES
 *
 * The first line that is no "ok" says what failed. Offsets are those of the commands in prm/spec.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, RING = 16, COMMAND = 0x200 };
enum { CQ_RECORD = 0, SQ_RECORD = 64, QP_RECORD = 128, CQ_RING = PAGE, SQ_RING = 2 * PAGE, QP_RING = 3 * PAGE, MEMORY = 8 * PAGE };

static uint8_t in[COMMAND], out[COMMAND];

static void fail(const char *what)
{
	printf("failed: %s: %s (status %#x, syndrome %#x)\n", what, strerror(errno), out[0], be32toh(*(uint32_t *)(out + 4)));
	exit(1);
}

static void *check(void *p, const char *what)
{
	if (!p)
		fail(what);
	printf("ok %s\n", what);
	return p;
}

static void done(int err, const char *what)
{
	if (err) {
		errno = err < 0 ? errno : err;
		fail(what);
	}
	printf("ok %s\n", what);
}

static void put(int at, uint32_t v) { *(uint32_t *)(in + at) = htobe32(v); }

static uint32_t get(int at) { return be32toh(*(uint32_t *)(out + at)); }

/* command begins a command; the fields follow by put. */
static void command(uint16_t opcode)
{
	memset(in, 0, sizeof(in));
	memset(out, 0, sizeof(out));
	put(0, (uint32_t)opcode << 16);
}

static struct mlx5dv_devx_obj *create(struct ibv_context *c, size_t n, const char *what)
{
	return check(mlx5dv_devx_obj_create(c, in, n, out, 16), what);
}

/* in_umem says where a ring is: number at the offset, and whether it counts behind it. */
static void in_umem(int at, uint64_t offset, uint32_t id)
{
	put(at, offset >> 32);
	put(at + 4, offset);
	put(at + 8, id);
	put(at + 12, 1u << 31);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct mlx5dv_vfio_context_attr attr = { .pci_name = argv[1] };
	struct ibv_device **list = check(mlx5dv_get_vfio_device_list(&attr), "find the device");
	struct ibv_context *c = check(ibv_open_device(list[0]), "open the device");
	struct ibv_pd *pd = check(ibv_alloc_pd(c), "PD");
	struct mlx5dv_pd pdn;
	struct mlx5dv_obj numbers = { .pd = { .in = pd, .out = &pdn } };
	done(mlx5dv_init_obj(&numbers, MLX5DV_OBJ_PD), "number of the PD");

	uint8_t *frame = check(aligned_alloc(PAGE, PAGE), "memory of the frame");
	memset(frame, 0, PAGE);
	struct ibv_mr *mr = check(ibv_reg_mr(pd, frame, PAGE, IBV_ACCESS_LOCAL_WRITE), "MR");
	uint8_t *m = check(aligned_alloc(MEMORY, MEMORY), "memory of the rings");
	memset(m, 0, MEMORY);
	struct mlx5dv_devx_umem *umem = check(mlx5dv_devx_umem_reg(c, m, MEMORY, IBV_ACCESS_LOCAL_WRITE), "umem");
	uint32_t eqn;
	done(mlx5dv_devx_query_eqn(c, 0, &eqn), "EQ");
	/* The provider itself refuses the kind with BlueFlame (0): it gives the page of its own EQ. */
	struct mlx5dv_devx_uar *uar = check(mlx5dv_devx_alloc_uar(c, MLX5DV_UAR_ALLOC_TYPE_NC), "UAR");

	command(0x400); /* CREATE_CQ */
	put(0x10, 1 << 25);
	put(0x14, umem->umem_id);
	put(0x1c, 4 << 24 | uar->page_id);
	put(0x24, eqn);
	put(0x4c, CQ_RECORD);
	in_umem(0x50, CQ_RING, umem->umem_id);
	for (int i = 0; i < RING; i++)
		m[CQ_RING + 64 * i + 63] = 0xf1;
	struct mlx5dv_devx_obj *cq = create(c, 0x110, "CQ");
	uint32_t cqn = get(8) & 0xffffff;

	command(0x500); /* CREATE_QP: RC, 16 WQEs of 32 bytes, 16 basic blocks */
	put(0x18, 3 << 11);
	put(0x1c, pdn.pdn);
	put(0x20, 4 << 19 | 1 << 16 | 4 << 11 | 1 << 6);
	put(0x24, uar->page_id);
	put(0x18 + 0x7c, cqn);
	put(0x18 + 0x9c, cqn);
	put(0x18 + 0xa4, QP_RECORD);
	put(0x18 + 0xd0, 1 << 28);
	put(0x18 + 0xe4, umem->umem_id);
	in_umem(0x100, QP_RING, umem->umem_id);
	struct mlx5dv_devx_obj *qp = create(c, 0x110, "QP");
	uint32_t qpn = get(8) & 0xffffff;
	command(0x502); /* RST2INIT_QP */
	put(8, qpn);
	put(0x18 + 0x18 + 0x24, 1 << 16);
	done(mlx5dv_devx_obj_modify(qp, in, 0x110, out, 16), "QP to INIT");
	command(0x50b); /* QUERY_QP */
	put(8, qpn);
	done(mlx5dv_devx_obj_query(qp, in, 16, out, 0x1d0), "state of the QP");
	if (get(0x18) >> 28 != 1 || (get(0x1c) & 0xffffff) != pdn.pdn) {
		printf("failed: the QP is in state %u, with PD %#x\n", get(0x18) >> 28, get(0x1c));
		return 1;
	}

	command(0x816); /* ALLOC_TRANSPORT_DOMAIN */
	struct mlx5dv_devx_obj *domain = create(c, 16, "transport domain");
	uint32_t td = get(8) & 0xffffff;
	command(0x912); /* CREATE_TIS */
	put(0x20 + 0x24, td);
	struct mlx5dv_devx_obj *tis = create(c, 0xc0, "TIS");
	uint32_t tisn = get(8) & 0xffffff;
	command(0x904); /* CREATE_SQ */
	put(0x20 + 0x08, cqn);
	put(0x20 + 0x20, 1 << 16);
	put(0x20 + 0x2c, tisn);
	put(0x50, 1 << 28);
	put(0x58, pdn.pdn);
	put(0x5c, uar->page_id);
	put(0x64, SQ_RECORD);
	put(0x70, 6 << 16 | 4);
	put(0x74, 3u << 30);
	put(0x78, umem->umem_id);
	put(0x7c, umem->umem_id);
	put(0x84, SQ_RING);
	struct mlx5dv_devx_obj *sq = create(c, 0x110, "SQ");
	uint32_t sqn = get(8) & 0xffffff;
	command(0x905); /* MODIFY_SQ */
	put(8, sqn);
	put(0x20, 1 << 20);
	done(mlx5dv_devx_obj_modify(sq, in, 0x110, out, 16), "SQ to RDY");

	/* Frames to all, of this program's own type. */
	memset(frame, 0xff, 6);
	memcpy(frame + 6, "\x02\0\0\0\0\x02\x88\xb6second opinion", 22);
	for (int i = 0; i < atoi(argv[2]); i++) {
		uint32_t *wqe = (uint32_t *)(m + SQ_RING + 64 * (i % RING));
		memset(wqe, 0, 64);
		wqe[0] = htobe32((uint32_t)i << 8 | 0x0a);
		wqe[1] = htobe32(sqn << 8 | 3);
		wqe[2] = htobe32(2 << 2);
		wqe[8] = htobe32(60);
		wqe[9] = htobe32(mr->lkey);
		*(uint64_t *)(wqe + 10) = htobe64((uintptr_t)frame);
		frame[59] = i;
		__sync_synchronize();
		*(volatile uint32_t *)(m + SQ_RECORD + 4) = htobe32(i + 1);
		__sync_synchronize();
		*(volatile uint64_t *)uar->reg_addr = *(uint64_t *)wqe;
		volatile uint8_t *cqe = m + CQ_RING + 64 * (i % RING);
		time_t until = time(NULL) + 60;
		while ((cqe[63] & 1) != (i / RING & 1) || cqe[63] >> 4 == 0xf)
			if (time(NULL) > until) {
				printf("failed: no completion of frame %d\n", i);
				return 1;
			}
		if (cqe[63] >> 4) {
			printf("failed: completion with opcode %#x, syndrome %#x\n", cqe[63] >> 4, cqe[55]);
			return 1;
		}
		*(volatile uint32_t *)(m + CQ_RECORD) = htobe32(i + 1);
	}
	printf("ok %s frames sent\n", argv[2]);

	done(mlx5dv_devx_obj_destroy(sq), "destroy the SQ");
	done(mlx5dv_devx_obj_destroy(tis), "destroy the TIS");
	done(mlx5dv_devx_obj_destroy(domain), "free the transport domain");
	done(mlx5dv_devx_obj_destroy(qp), "destroy the QP");
	done(mlx5dv_devx_obj_destroy(cq), "destroy the CQ");
	mlx5dv_devx_free_uar(uar);
	done(mlx5dv_devx_umem_dereg(umem), "deregister the umem");
	done(ibv_dereg_mr(mr), "deregister the MR");
	done(ibv_dealloc_pd(pd), "free the PD");
	done(ibv_close_device(c), "close the device");
	ibv_free_device_list(list);
	printf("agrees\n");
	return 0;
}
