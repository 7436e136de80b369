// SPDX-License-Identifier: Apache-2.0
//
// One body for each name without behaviour: it returns 3, which is CUDA_ERROR_NOT_INITIALIZED and
// NVML_ERROR_NOT_SUPPORTED, and writes no output. Tools such as UCX patch a driver's functions in
// place, so each name has its own room and begins with plain code (no endbr64, no bti).
// tests/artefacts/test_null_drivers.py checks this.
//
// The build defines CG_DRIVER or CG_NVML.

#if defined(__x86_64__)
#define CG_ROOM 16
.macro cg_answer
  movl $3, %eax
  ret
.endm
#elif defined(__aarch64__)
#define CG_ROOM 32
.macro cg_answer
  mov w0, #3
  ret
.endm
#else
#error "no null driver for this processor"
#endif

.macro cg_entry name
  .globl \name
  .type \name, %function
  .balign CG_ROOM
\name:
.Lcg_\name:
  cg_answer
  .balign CG_ROOM  // st_size includes the room, because tools read it
  .size \name, . - \name
.endm

.macro cg_data name, size
  .globl \name
  .type \name, %object
  .size \name, \size
  .balign 8
\name:
  .skip \size
.endm

#define CG_ENTRY(name) cg_entry name
#define CG_DATA(name, size)
  .text
#if defined(CG_DRIVER)
#include "driver_entries.inc"
#elif defined(CG_NVML)
#include "nvml_entries.inc"
#else
#error "which library?"
#endif
#undef CG_ENTRY
#undef CG_DATA

#if defined(CG_DRIVER)
// Variables that the debugger looks for. The real driver exports them, too. They are not in .bss,
// which would be a mapping of its own.
#define CG_ENTRY(name)
#define CG_DATA(name, size) cg_data name, size
  .data
#include "driver_entries.inc"
#undef CG_ENTRY
#undef CG_DATA

// cuGetProcAddress's table. It has 32-bit offsets, because pointers would have to be relocated.
// Each row is {name, entry, version, 1 for a per-thread default stream}, see proc_address.cpp. An
// offset leads to a local label of this file, or to the hidden alias of a C++ function.
  .section .rodata
#define CG_BASE(name) .Lname_##name: .asciz #name
#define CG_ROW(base, name, version, per_thread)
#include "driver_lookup.inc"
#undef CG_BASE
#undef CG_ROW

  .balign 16
  .globl cg_lookup_rows
  .hidden cg_lookup_rows
  .type cg_lookup_rows, %object
cg_lookup_rows:
.macro cg_row base, name, version, per_thread
  .long .Lname_\base - cg_lookup_rows
  .ifdef .Lcg_\name
  .long .Lcg_\name - .
  .else
  .hidden cg_own_\name
  .long cg_own_\name - .
  .endif
  .long \version
  .long \per_thread
.endm
#define CG_BASE(name)
#define CG_ROW(base, name, version, per_thread) cg_row base, name, version, per_thread
#include "driver_lookup.inc"
  .size cg_lookup_rows, . - cg_lookup_rows
#endif

#if defined(__x86_64__)
// The code is fit for a shadow stack (bit 1), not for indirect branch tracking (bit 0: endbr64).
  .section .note.gnu.property, "a"
  .balign 8
  .long 4, 16, 5  // sizes of name and content, NT_GNU_PROPERTY_TYPE_0
  .asciz "GNU"
  .long 0xc0000002, 4, 2, 0  // GNU_PROPERTY_X86_FEATURE_1_AND
#endif

  .section .note.GNU-stack, "", %progbits
