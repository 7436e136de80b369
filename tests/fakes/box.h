// SPDX-License-Identifier: Apache-2.0
// Describes the test machine: eight GPUs in PCI order, or one. tests/support/box.py parses the rows
// below.
#ifndef CUDAGUARD_TESTS_FAKES_BOX_H
#define CUDAGUARD_TESTS_FAKES_BOX_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMigs = 2, kBoxVersion = 13020 };

struct box_gpu {
  const char* uuid;  // without the prefix "GPU-"
  unsigned bus;
  const char* serial;
  const char* name;
};

#ifdef CG_ONE_GPU

enum { kGpus = 1 };
static const struct box_gpu kBox[kGpus] = {
    {"42424242-4242-4242-4242-424242424242", 0x07, "1652300000042", "Recording fake"},
};
static const int kFastestFirst[kGpus] = {0};

#else

enum { kGpus = 8 };
// GPUs 2 and 5 differ in the last digits only, so all but the longest prefixes are ambiguous.
static const struct box_gpu kBox[kGpus] = {
    {"8a1f03c2-5d1e-4f0b-9c3a-2f6b7d10e001", 0x07, "1652300000107", "Box GPU 0"},
    {"17c9e4b8-02ad-4c55-8b77-90ab13de2f12", 0x0f, "1652300000115", "Box GPU 1"},
    {"5b1f0c77-9d52-4e0a-8c61-7a3e55d0c0a2", 0x47, "1652300000171", "Box GPU 2"},
    {"e03d6a91-73f4-4b1c-a2d8-1c0f9e8b7a63", 0x4e, "1652300000178", "Box GPU 3"},
    {"29d8b5f6-c410-4a7e-b1e9-d4c3b2a19084", 0x87, "1652300000235", "Box GPU 4"},
    {"5b1f0c77-9d52-4e0a-8c61-7a3e55d0c0b5", 0x90, "1652300000244", "Box GPU 5"},
    {"c7750e1d-3b68-4d92-95fa-6e5d4c3b2a16", 0xb7, "1652300000283", "Box GPU 6"},
    {"42f6a9d3-e8c7-4136-8e2d-b0a1c2d3e4f7", 0xbd, "1652300000289", "Box GPU 7"},
};

// In CUDA's own order, the GPU that CUDA considers the fastest comes first.
static const int kFastestFirst[kGpus] = {3, 0, 1, 2, 7, 4, 5, 6};

#endif

// With CG_MIG=1, GPU 6 has these MIG parts. `slot` is their NVML index, and NVML's indices may have
// gaps.
struct box_mig {
  const char* uuid;
  int gpu;
  unsigned slot;
};
static const struct box_mig kMig[kMigs] = {
    {"3c58f7a0-1b2d-5e4f-8a69-0d1c2b3a4f50", 6, 0},
    {"f94e21b6-7c3d-5a08-9e1b-5f6a7b8c9d01", 6, 2},
};

static inline int box_has_mig(void) {
  const char* text = getenv("CG_MIG");
  return kGpus > 6 && text != NULL && strcmp(text, "1") == 0;
}

// Returns the directory in which each process with a context has a file named by its process id, or
// NULL if the fakes do not record contexts. The name does not begin with CG_ because gpu-check
// removes those variables.
static inline const char* box_contexts(void) { return getenv("KEPT_CONTEXTS"); }

// Writes the 16 bytes that the text of a UUID represents.
static inline void box_uuid_bytes(const char* text, unsigned char* bytes) {
  for (int i = 0; i < 16; ++i) {
    if (*text == '-') ++text;
    char digits[3] = {text[0], text[1], '\0'};
    bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    text += 2;
  }
}

// Returns the GPU at a bus id such as "0000:3B:00.0" or "00000000:3b:00.0", or -1.
static inline int box_find_bus(const char* text) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  if (text == NULL || sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) return -1;
  for (int i = 0; i < kGpus; ++i) {
    if (domain == 0 && device == 0 && kBox[i].bus == bus) return i;
  }
  return -1;
}

#endif
