// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cudaguard {

// Every export has room for the patches that tools write over a driver's functions (entries.S).
// This function adds the room to a body as short as `return 0`. The answer passes through the asm,
// so that the nops cannot move to the front: a function must begin with plain code.
template <typename T>
[[gnu::always_inline]] inline T roomy(T answer) {
#if defined(__x86_64__)
  asm volatile(".rept 16; nop; .endr" : "+r"(answer));
#else
  asm volatile(".rept 8; nop; .endr" : "+r"(answer));
#endif
  return answer;
}

}  // namespace cudaguard

// Begins a definition. tests/artefacts/test_declarations.py compares it with NVIDIA's headers.
#define CG_EXPORT extern "C" [[gnu::visibility("default")]]

// Defines the hidden alias by which cuGetProcAddress's table reaches a body written in C++.
#define CG_OWN_NAME(name) \
  extern "C" [[gnu::alias(#name), gnu::visibility("hidden")]] decltype(::name) cg_own_##name

// The claim, which each null driver exports. ld.so remembers every name by which a file was loaded,
// so one request for `name` makes the name ours for the rest of the process. The request must come
// from this object's code, because its DT_RPATH ($ORIGIN) then leads to the link in its directory.
// An installation without links has an empty library of that name there (cg_add_name).
#define CG_CLAIM()                                                                       \
  CG_EXPORT void* cudaguard_null_driver_claim_v1(void* (*libc_dlopen)(const char*, int), \
                                                 const char* name) {                     \
    constexpr int kLazy = 1;                                                             \
    constexpr int kNoload = 4; /* RTLD_NOLOAD: a name, no file */                        \
    void* handle = libc_dlopen(name, kLazy | kNoload);                                   \
    if (handle == nullptr) {                                                             \
      char path[32] = "$ORIGIN/";                                                        \
      for (int at = 8; at < 31 && *name != '\0'; ++at) path[at] = *name++;               \
      handle = libc_dlopen(path, kLazy);                                                 \
    }                                                                                    \
    asm volatile("" : "+r"(handle)); /* no tail call: the return address is ours */      \
    return handle;                                                                       \
  }
