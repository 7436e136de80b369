// SPDX-License-Identifier: Apache-2.0
// half_loaded LIBRARY [loading]: calls CUDA with the library loaded. With "loading", a part is
// writable that ld.so makes read-only after the relocation, as while another thread loads it.
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096 };

static int make_writable(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  if (strcmp(info->dlpi_name, path) != 0) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_GNU_RELRO) continue;
    const size_t start = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) / kPage * kPage;
    return mprotect((void*)start, kPage, PROT_READ | PROT_WRITE) == 0;
  }
  return 0;
}

int main(int argc, char** argv) {
  if (dlopen(argv[1], RTLD_NOW) == NULL) return 2;
  if (argc > 2 && dl_iterate_phdr(make_writable, argv[1]) == 0) return 3;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 4;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  printf("%d\n", init(0));
}
