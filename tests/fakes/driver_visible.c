// SPDX-License-Identifier: Apache-2.0
// Reads CUDA_VISIBLE_DEVICES by CUDA's own rules: the first invalid entry ends the list, and a GPU
// that appears twice empties it.
#include "driver.h"

#if defined(CG_NO_GETENV) || defined(CG_BYPASS)
extern char** environ;

char* box_getenv(const char* name) {
  const size_t size = strlen(name);
  for (char** entry = environ; entry != NULL && *entry != NULL; ++entry) {
    if (strncmp(*entry, name, size) == 0 && (*entry)[size] == '=') return *entry + size + 1;
  }
  return NULL;
}
#endif

static int number_of(const char* name) {
  const char* text = getenv(name);
  return text == NULL || *text == '\0' ? -1 : (int)strtol(text, NULL, 10);
}

// Returns the GPU whose UUID begins with this text, or -1 if there is not exactly one.
static int find_gpu(const char* text, size_t size, int gone) {
  int found = -1;
  for (int i = 0; i < kGpus; ++i) {
    if (i == gone || size > strlen(kBox[i].uuid) || strncmp(kBox[i].uuid, text, size) != 0)
      continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static int find_mig(const char* text, size_t size) {
  int found = -1;
  for (int i = 0; i < kMigs && box_has_mig(); ++i) {
    if (size > strlen(kMig[i].uuid) || strncmp(kMig[i].uuid, text, size) != 0) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static int parse_entry(const char* text, size_t size, char kind, const struct visible* all,
                       int total, int gone, struct visible* out) {
  if (kind == 'G' || kind == 'M') {
    if (size < 5 || text[0] != kind) return 0;
    if (strncmp(text, kind == 'G' ? "GPU-" : "MIG-", 4) != 0) return 0;
    const int found =
        kind == 'G' ? find_gpu(text + 4, size - 4, gone) : find_mig(text + 4, size - 4);
    if (found < 0) return 0;
    out->gpu = kind == 'G' ? found : kMig[found].gpu;
    out->mig = kind == 'G' ? -1 : found;
    return 1;
  }
  char* end = NULL;
  const long index = strtol(text, &end, 10);
  if (end == text || index < 0 || index >= total) return 0;
  *out = all[index];
  return 1;
}

// Returns what a driver that ignores the variable would show. CG_LIE selects how.
static int lie(struct visible* out, int count, const struct visible* all, int total) {
#ifdef CG_LIAR
  const char* how = getenv("CG_LIE");
  if (how != NULL && strcmp(how, "others") == 0) {
    // As many GPUs as requested, but other ones.
    for (int i = 0; i < count; ++i) out[i] = all[total - 1 - i];
    return count;
  }
  memcpy(out, all, sizeof *all * (size_t)total);
  return total;
#else
  (void)out;
  (void)all;
  (void)total;
  return count;
#endif
}

int read_visible(struct visible* out) {
  const char* order = getenv("CUDA_DEVICE_ORDER");
  const int by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
  const int gone = number_of("CG_GONE");
  struct visible all[kGpus];
  int total = 0;
  for (int i = 0; i < kGpus; ++i) {
    const int gpu = by_bus ? i : kFastestFirst[i];
    if (gpu == gone) continue;
    all[total].gpu = gpu;
    all[total].mig = -1;
    ++total;
  }
  const char* text = CG_GETENV_VISIBLE("CUDA_VISIBLE_DEVICES");
#ifdef CG_ONE_GPU
  // The answer shows whether a program reached this driver, so the launcher's preset must not hide
  // its GPU.
  if (text != NULL && *text == '\0') text = NULL;
#endif
  // The text that the driver read first must stay unchanged, as the driver may read it again at any
  // time.
  static const char* first = NULL;
  if (first != NULL) fake_log("told first:", first);
  if (first == NULL) first = text;
  if (text == NULL) {
    memcpy(out, all, sizeof *all * (size_t)total);
    return total;
  }
  int count = 0;
  const char kind = *text;
  for (;;) {
    const size_t size = strcspn(text, ",");
    struct visible entry;
    if (!parse_entry(text, size, kind, all, total, gone, &entry)) break;
    for (int i = 0; i < count; ++i) {
      if (out[i].gpu == entry.gpu && out[i].mig == entry.mig) return lie(out, 0, all, total);
    }
    out[count++] = entry;
    if (text[size] == '\0' || count == kMaxVisible) break;
    text += size + 1;
  }
  return lie(out, count, all, total);
}
