// SPDX-License-Identifier: Apache-2.0
// uring FILE REQUEST...: as requests, by io_uring. It has no operation that is an ioctl: the
// nearest is IORING_OP_URING_CMD, which asks the file's own uring_cmd, and NVIDIA's modules have
// none.
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kUringCmd = 46 };  // IORING_OP_URING_CMD, Linux 5.19

static void* map(int ring, size_t size, off_t what) {
  void* mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);
  if (mapped == MAP_FAILED) exit(2);
  return mapped;
}

int main(int count, char** words) {
  struct io_uring_params params = {0};
  const int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
  if (ring < 0) {
    printf("setup %s\n", strerrorname_np(errno));
    return 0;
  }
  char* queue = map(ring, params.sq_off.array + sizeof(uint32_t), IORING_OFF_SQ_RING);
  char* done = map(ring, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
                   IORING_OFF_CQ_RING);
  struct io_uring_sqe* entry = map(ring, sizeof(struct io_uring_sqe), IORING_OFF_SQES);
  const int file = open(words[1], O_RDWR);
  for (int i = 2; i < count; ++i) {
    memset(entry, 0, sizeof *entry);
    entry->opcode = kUringCmd;
    entry->fd = file;
    entry->off = strtoul(words[i], NULL, 16);  // cmd_op
    *(uint32_t*)(queue + params.sq_off.array) = 0;
    __atomic_fetch_add((uint32_t*)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) return 2;
    uint32_t* head = (uint32_t*)(done + params.cq_off.head);
    const struct io_uring_cqe* end = (struct io_uring_cqe*)(done + params.cq_off.cqes);
    const int answer = end[*head & *(uint32_t*)(done + params.cq_off.ring_mask)].res;
    __atomic_fetch_add(head, 1, __ATOMIC_RELEASE);
    printf("%s %s\n", words[i], answer == 0 ? "0" : strerrorname_np(-answer));
  }
  return 0;
}
