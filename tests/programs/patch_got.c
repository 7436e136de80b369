// SPDX-License-Identifier: Apache-2.0
// A library that redirects the program's dlopen to libc's own by writing to the program's GOT. UCX
// does the same with UCX_MEM_MMAP_HOOK_MODE=reloc.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void write_slot(void** slot, void* value) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  void* start = (void*)((uintptr_t)slot / page * page);
  if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) _exit(95);
  *slot = value;
}

static int patch(const struct link_map* map, ElfW(Sxword) table_tag, ElfW(Sxword) size_tag,
                 void* value) {
  const ElfW(Sym)* symbols = NULL;
  const char* strings = NULL;
  const ElfW(Rela)* table = NULL;
  size_t count = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) strings = (const char*)entry->d_un.d_ptr;
    if (entry->d_tag == table_tag) table = (const ElfW(Rela)*)entry->d_un.d_ptr;
    if (entry->d_tag == size_tag) count = entry->d_un.d_val / sizeof *table;
  }
  int patched = 0;
  for (size_t i = 0; table != NULL && i < count; ++i) {
    const ElfW(Sym)* symbol = &symbols[ELF64_R_SYM(table[i].r_info)];
    if (strcmp(strings + symbol->st_name, "dlopen") != 0) continue;
    write_slot((void**)(map->l_addr + table[i].r_offset), value);
    patched = 1;
  }
  return patched;
}

__attribute__((constructor)) static void patch_program(void) {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  void* own = libc == NULL ? NULL : dlsym(libc, "dlopen");
  const struct link_map* program = _r_debug.r_map;
  if (own == NULL || (patch(program, DT_JMPREL, DT_PLTRELSZ, own) |
                      patch(program, DT_RELA, DT_RELASZ, own)) == 0) {
    _exit(94);
  }
}
