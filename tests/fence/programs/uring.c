// SPDX-License-Identifier: Apache-2.0
// uring --open PATH: opens this path by io_uring, for reading and writing, and with the mode 3.
// uring --leave PROGRAM...: starts this program with a ring and its rights, by which that program
// can open a path with --inherited PATH.
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

static void* map(int ring, size_t size, off_t what) {
  void* mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);
  if (mapped == MAP_FAILED) exit(2);
  return mapped;
}

struct ring {
  int file;
  unsigned short personality;
  struct io_uring_params params;
  char* queue;
  char* done;
  struct io_uring_sqe* entry;
};

static void map_all(struct ring* ring) {
  const struct io_uring_params* const params = &ring->params;
  ring->queue = map(ring->file, params->sq_off.array + sizeof(uint32_t), IORING_OFF_SQ_RING);
  ring->done =
      map(ring->file, params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe),
          IORING_OFF_CQ_RING);
  ring->entry = map(ring->file, sizeof(struct io_uring_sqe), IORING_OFF_SQES);
  memset(ring->entry, 0, sizeof *ring->entry);
}

/// Returns false and errno if this kernel or a filter has no io_uring.
static int set_up(struct ring* ring) {
  memset(ring, 0, sizeof *ring);
  ring->file = (int)syscall(SYS_io_uring_setup, 1, &ring->params);
  if (ring->file < 0) return 0;
  map_all(ring);
  return 1;
}

/// Starts a program with the ring. This file tells it the rest.
static void leave(struct ring* ring, char** words) {
  const int file = memfd_create("ring", 0);
  if (dup2(file, 8) < 0 || dup2(ring->file, 9) < 0) exit(2);
  ring->file = 9;
  ring->personality =
      (unsigned short)syscall(SYS_io_uring_register, 9, IORING_REGISTER_PERSONALITY, NULL, 0);
  if (write(8, ring, sizeof *ring) != sizeof *ring) exit(2);
  execvp(words[0], words);
}

static void inherit(struct ring* ring) {
  if (pread(8, ring, sizeof *ring, 0) != sizeof *ring) exit(2);
  map_all(ring);
  ring->entry->personality = ring->personality;
}

/// Sends the entry, and returns its answer, or that of the system call if this fails.
static int answer_of(struct ring* ring) {
  const struct io_uring_params* const params = &ring->params;
  *(uint32_t*)(ring->queue + params->sq_off.array) = 0;
  __atomic_fetch_add((uint32_t*)(ring->queue + params->sq_off.tail), 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring->file, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
    return -errno;
  uint32_t* const head = (uint32_t*)(ring->done + params->cq_off.head);
  const struct io_uring_cqe* const end = (struct io_uring_cqe*)(ring->done + params->cq_off.cqes);
  const int answer = end[*head & *(uint32_t*)(ring->done + params->cq_off.ring_mask)].res;
  __atomic_fetch_add(head, 1, __ATOMIC_RELEASE);
  return answer;
}

static void open_path(struct ring* ring, const char* path, uint32_t flags) {
  ring->entry->opcode = IORING_OP_OPENAT;
  ring->entry->fd = AT_FDCWD;
  ring->entry->addr = (uintptr_t)path;
  ring->entry->open_flags = flags;
  const int file = answer_of(ring);
  printf("uring-%u %s %s\n", flags, path, file >= 0 ? "opened" : strerrorname_np(-file));
  if (file >= 0) close(file);
}

int main(int count, char** words) {
  if (count < 3) return 2;
  struct ring ring;
  const int inherited = strcmp(words[1], "--inherited") == 0;
  if (inherited) {
    inherit(&ring);
  } else if (!set_up(&ring)) {
    printf("setup %s\n", strerrorname_np(errno));
    return 0;
  }
  if (strcmp(words[1], "--leave") == 0) leave(&ring, words + 2);
  open_path(&ring, words[2], O_RDWR);
  open_path(&ring, words[2], O_ACCMODE);
  return 0;
}
