// SPDX-License-Identifier: Apache-2.0
// half_loaded LIBRARY map|load: calls CUDA with the library loaded, or only mapped and not
// relocated. ld.so leaves a library in the second state while another thread loads it.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096, kRoom = 1 << 20 };

static int map(const char* path) {
  const int file = open(path, O_RDONLY);
  const char* whole = mmap(NULL, kPage, PROT_READ, MAP_PRIVATE, file, 0);
  char* base = mmap(NULL, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (file < 0 || whole == MAP_FAILED || base == MAP_FAILED) return 0;
  const ElfW(Ehdr)* header = (const ElfW(Ehdr)*)whole;
  const ElfW(Phdr)* segment = (const ElfW(Phdr)*)(whole + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i, ++segment) {
    if (segment->p_type != PT_LOAD) continue;
    const size_t more = segment->p_vaddr % kPage;
    const int access = (segment->p_flags & PF_R ? PROT_READ : 0) |
                       (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                       (segment->p_flags & PF_X ? PROT_EXEC : 0);
    if (mmap(base + segment->p_vaddr - more, segment->p_filesz + more, access,
             MAP_PRIVATE | MAP_FIXED, file, (off_t)(segment->p_offset - more)) == MAP_FAILED) {
      return 0;
    }
  }
  return munmap((void*)whole, kPage) == 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (strcmp(argv[2], "map") == 0 ? !map(argv[1]) : dlopen(argv[1], RTLD_NOW) == NULL) return 3;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 4;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  printf("%d\n", init(0));
}
