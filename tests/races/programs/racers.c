// SPDX-License-Identifier: Apache-2.0
// Many threads make the first call of a process and print the answer that each of them got.
//   racers THREADS ENTRY_POINTS    thread i uses entry point i of ENTRY_POINTS, repeated: kWays
// Prints one line "THREADS ANSWER" for each different answer. An answer is "COUNT:UUID,UUID..." or
// "!CODE", the same for every entry point that shows the same GPUs.
#include <pthread.h>
#include <time.h>

#include "../../devices/programs/ops.h"

enum { kMostThreads = 64 };

extern char** environ;

// Replaces libc's getenv. The driver asks for CG_GONE inside cuInit, so this makes cuInit take as
// many microseconds as CG_SLOW says. NVIDIA's takes longer.
__attribute__((visibility("default"))) char* getenv(const char* name) {
  const size_t size = strlen(name);
  if (strcmp(name, "CG_GONE") == 0) {
    const char* slow = getenv("CG_SLOW");
    const struct timespec pause = {0, slow == NULL ? 0 : strtol(slow, NULL, 10) * 1000};
    nanosleep(&pause, NULL);
  }
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (strncmp(*entry, name, size) == 0 && (*entry)[size] == '=') return *entry + size + 1;
  }
  return NULL;
}

static const struct way {
  char entry_point;
  step_function step;
  const char* route;
  const char* value;
  const char* see;
} kWays[] = {
    {'o', driver_step, "cu.route", "dlsym", "cu.see"},
    {'p', driver_step, "cu.route", "proc", "cu.see"},  // cuGetProcAddress_v2
    {'n', nvml_step, "nv.route", "dlsym", "nv.see"},
    // These need a program that is linked to the driver and NVML.
    {'l', driver_step, "cu.route", "linked", "cu.see"},
    {'m', nvml_step, "nv.route", "linked", "nv.see"},
    {'r', runtime_step, NULL, NULL, "rt.see"},  // the runtime that the program is linked to
};

static struct thread {
  pthread_t id;
  const struct way* way;
  struct answer answer;
} g_threads[kMostThreads];
static pthread_barrier_t g_barrier;

static void* run(void* argument) {
  struct thread* thread = argument;
  const struct way* way = thread->way;
  struct answer chosen = {.used = 0};
  if (way->route != NULL) way->step(way->route, way->value, &chosen);
  if (chosen.text[0] == '-') exit(2);
  pthread_barrier_wait(&g_barrier);
  way->step(way->see, "", &thread->answer);
  // No thread ends before all have asked, because ThreadSanitizer does not detect a reused stack.
  pthread_barrier_wait(&g_barrier);
  return NULL;
}

// Without what the successful calls before the count have returned.
static const char* answer_of(struct thread* thread) {
  char* text = thread->answer.text;
  if (*text != '0') {
    const size_t size = strcspn(text, ":");
    memmove(text + 1, text, size);
    text[0] = '!';
    text[size + 1] = '\0';
  }
  while (strncmp(text, "0:", 2) == 0) text += 2;
  return text;
}

int main(int argc, char** argv) {
  const int threads = argc == 3 ? (int)strtol(argv[1], NULL, 10) : 0;
  if (threads < 1 || threads > kMostThreads || *argv[2] == '\0') return 2;
  pthread_barrier_init(&g_barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) {
    for (size_t k = 0; k < sizeof kWays / sizeof *kWays; ++k) {
      if (kWays[k].entry_point == argv[2][(size_t)i % strlen(argv[2])])
        g_threads[i].way = &kWays[k];
    }
    if (g_threads[i].way == NULL) return 2;
    if (pthread_create(&g_threads[i].id, NULL, run, &g_threads[i]) != 0) return 4;
  }
  const char* answers[kMostThreads];
  for (int i = 0; i < threads; ++i) {
    pthread_join(g_threads[i].id, NULL);
    answers[i] = answer_of(&g_threads[i]);
  }
  for (int i = 0; i < threads; ++i) {
    int first = 1;
    int same = 0;
    for (int k = 0; k < threads; ++k) {
      if (strcmp(answers[k], answers[i]) != 0) continue;
      if (k < i) first = 0;
      ++same;
    }
    if (first) printf("%d %s\n", same, answers[i]);
  }
  return 0;
}
