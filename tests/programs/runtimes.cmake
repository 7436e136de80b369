# SPDX-License-Identifier: Apache-2.0
# Programs linked to NVIDIA's runtimes, for each one that scripts/fetch-cuda has put into CG_DEPS.
# A runtime that is not there has no program; the tests say so and skip, or fail where they must run.

# cg_runtime(<id> <folder below CG_DEPS>): runtime_<id>_shared, runtime_<id>_static,
# runtime_plugin_<id>.so
function(cg_runtime id folder)
  set(root "${CG_DEPS}/${folder}")
  file(GLOB shared "${root}/lib/libcudart.so.[0-9]*")
  if(NOT EXISTS "${root}/include/cuda_runtime_api.h")
    return()
  endif()
  if(shared)
    list(GET shared 0 shared)
    cg_program(runtime_${id}_shared runtime.cpp LINK "${shared}" RPATH "${root}/lib")
    cg_plugin(runtime_plugin_${id} runtime_plugin.cpp LINK "${shared}" RPATH "${root}/lib")
    target_compile_options(runtime_plugin_${id} PRIVATE -O2) # as the recording ones below
    set(targets runtime_${id}_shared runtime_plugin_${id})
  endif()
  if(EXISTS "${root}/lib/libcudart_static.a")
    cg_program(runtime_${id}_static runtime.cpp LINK "${root}/lib/libcudart_static.a" rt)
    # The same linked to the driver too, as programs are that mix both interfaces.
    cg_program(runtime_${id}_linked runtime.cpp LINK "${root}/lib/libcudart_static.a" rt
               ${DRIVER_CUDA} OPTIONS -Wl,--no-as-needed)
    list(APPEND targets runtime_${id}_static runtime_${id}_linked)
  endif()
  foreach(target ${targets})
    # The wheels of the older majors lack crt/host_defines.h; the newest one's serves them too.
    target_include_directories(
      ${target} SYSTEM PRIVATE "${root}/include"
                               $<TARGET_PROPERTY:cuda_headers,INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
endfunction()

cg_runtime(11 cuda-11)
cg_runtime(12.2 cuda-12.2)
cg_runtime(12 cuda-12)
cg_runtime(13 cuda-13)

# Recording runtimes of two majors, to see which one a call reached.
foreach(major 12 13)
  add_library(fake_cudart_${major} SHARED fake_cudart.c)
  target_compile_definitions(fake_cudart_${major} PRIVATE MAJOR=${major})
  target_compile_options(fake_cudart_${major} PRIVATE -fno-sanitize=all)
  target_include_directories(fake_cudart_${major} PRIVATE ../fakes)
  target_link_options(
    fake_cudart_${major} PRIVATE -fno-sanitize=all -Wl,-soname,libcudart.so.${major}
    "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/fake_cudart_${major}.map")
  set_target_properties(
    fake_cudart_${major} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME "libcudart.so.${major}"
                                    LIBRARY_OUTPUT_DIRECTORY "${PROGRAMS_DIR}/fake-runtime")
  cg_plugin(fake_runtime_plugin_${major} fake_runtime_plugin.c LINK
            "-L${PROGRAMS_DIR}/fake-runtime" -l:libcudart.so.${major} RPATH "$ORIGIN/fake-runtime")
  add_dependencies(fake_runtime_plugin_${major} fake_cudart_${major})
  # In every preset: only an optimised call in tail position is a jump.
  target_compile_options(fake_runtime_plugin_${major} PRIVATE -O2)
  foreach(kind user on_load)
    set(target runtime_${kind}_${major})
    cg_plugin(${target} runtime_user.c DEFINE MAJOR=${major} LINK "-L${PROGRAMS_DIR}/fake-runtime"
              -l:libcudart.so.${major} RPATH "$ORIGIN/fake-runtime")
    add_dependencies(${target} fake_cudart_${major})
  endforeach()
  target_compile_definitions(runtime_on_load_${major} PRIVATE ON_LOAD)
endforeach()
cg_program(two_runtimes two_runtimes.c)
cg_program(global_runtimes global_runtimes.c DEFINE BOTH LINK runtime_user_12 runtime_user_13 RPATH
           "$ORIGIN")
cg_program(global_runtimes_reversed global_runtimes.c DEFINE BOTH LINK runtime_user_13
           runtime_user_12 RPATH "$ORIGIN")
cg_program(linked_runtime global_runtimes.c LINK "-L${PROGRAMS_DIR}/fake-runtime"
           -l:libcudart.so.12 RPATH "$ORIGIN/fake-runtime")
add_dependencies(linked_runtime fake_cudart_12)
cg_program(weak_runtime weak_runtime.c)
cg_program(weak_driver weak_driver.c)

# Programs that export trampolines called like the driver's functions, as TensorFlow does: in the
# program, in a library it is linked to.
cg_program(trampolines trampolines_main.c OPTIONS -rdynamic)
target_sources(trampolines PRIVATE trampolines.c)
cg_plugin(trampoline_library trampolines.c)
cg_program(trampolines_linked trampolines_main.c LINK trampoline_library RPATH "$ORIGIN")
