// SPDX-License-Identifier: Apache-2.0
// threads N: what one of NVIDIA's requests answers in each of N threads, half of them started by
// another thread, and in the first one before and after: "ENODEV 52".
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { kMost = 200 };

static int ask(void) {
  errno = 0;
  ioctl(open("/dev/null", O_RDWR), 0xc04846d2, NULL);
  return errno;
}

static void* answer(void* where) {
  *(int*)where = ask();
  return NULL;
}

struct part {
  int* first;
  int count;
};

static void* start(void* where) {
  const struct part* part = where;
  pthread_t threads[kMost];
  for (int i = 0; i < part->count; ++i) {
    pthread_create(&threads[i], NULL, answer, part->first + i);
  }
  for (int i = 0; i < part->count; ++i) pthread_join(threads[i], NULL);
  return NULL;
}

int main(int count, char** words) {
  const int half = count == 2 ? atoi(words[1]) / 2 : 0;
  if (half < 1 || half > kMost) return 2;
  int answers[2 * kMost + 2];
  answers[2 * half] = ask();
  struct part ours = {answers, half};
  struct part others = {answers + half, half};
  pthread_t thread;
  pthread_create(&thread, NULL, start, &others);
  start(&ours);
  pthread_join(thread, NULL);
  const int first = answers[2 * half + 1] = ask();
  int same = 0;
  for (int i = 0; i < 2 * half + 2; ++i) same += answers[i] == first;
  printf("%s %d\n", strerrorname_np(first), same);
  return 0;
}
