// SPDX-License-Identifier: Apache-2.0
// Prints what the first dlopen does to the entry of cuInit in the symbol table that defines it.
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(void) {
  void* found = dlsym(RTLD_DEFAULT, "cuInit");
  Dl_info info;
  const ElfW(Sym)* entry = NULL;
  if (found == NULL || dladdr1(found, &info, (void**)&entry, RTLD_DL_SYMENT) == 0) return 1;
  const ElfW(Sym) before = *entry;
  if (dlopen("libm.so.6", RTLD_NOW) == NULL) return 2;
  printf("found=%d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL);
  printf("same=%d\n", entry->st_value == before.st_value && entry->st_shndx == before.st_shndx &&
                          entry->st_info == before.st_info);
  return 0;
}
