# SPDX-License-Identifier: Apache-2.0
# Every area makes its programs and libraries with these functions. They are never sanitized,
# because a preloaded guard must meet programs as users build them. They have only the given run
# path, because each test gives a program its own driver.

# cg_program(<name> [source...]): a program <name>, by default of <name>.c.
# cg_library(<name> [source...]): <name>.so, or with FILE a library of just that name.
#   LINK item...          what to link with: fake_cuda is the fake driver, fake_nvml its NVML
#   OPTIONS option...     of the linker
#   FLAGS flag...         of the compiler
#   DEFINE name[=value]...
#   HEADERS directory...  with headers from outside the project
#   MAP file              the linker's version script
#   RPATH directory       the run path
#   DIRECTORY directory   its directory below the area's directory of the build tree
#   NO_SONAME             a library without one, which linked programs need by its path
# The target's name is CG_PREFIX and the file's name. Each area sets CG_PREFIX for itself.
function(cg_program name)
  cg_target(EXECUTABLE ${name} ${ARGN})
endfunction()

function(cg_library name)
  cg_target(SHARED ${name} ${ARGN})
endfunction()

function(cg_target kind name)
  cmake_parse_arguments(CG "NO_SONAME" "FILE;RPATH;DIRECTORY;MAP" "LINK;OPTIONS;FLAGS;DEFINE;HEADERS"
                        ${ARGN})
  set(target ${CG_PREFIX}${name})
  set(sources ${CG_UNPARSED_ARGUMENTS})
  if(NOT sources)
    file(GLOB sources ${name}.c ${name}.cpp programs/${name}.c programs/${name}.cpp)
  endif()
  if(kind STREQUAL "SHARED")
    add_library(${target} SHARED ${sources})
    string(APPEND name ".so")
  else()
    add_executable(${target} ${sources})
  endif()
  if(CG_FILE)
    set(name ${CG_FILE})
  endif()
  if(CG_MAP)
    list(APPEND CG_OPTIONS "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${CG_MAP}")
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${CG_MAP}")
  endif()
  # The programs look functions up by name and convert the addresses to function pointers.
  target_compile_options(${target} PRIVATE -fno-sanitize=all $<$<COMPILE_LANGUAGE:C>:-std=gnu11>
                                           ${CG_FLAGS})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE ${CG_DEFINE})
  target_include_directories(${target} SYSTEM PRIVATE ${CG_HEADERS})
  target_link_options(${target} PRIVATE -fno-sanitize=all ${CG_OPTIONS})
  target_link_libraries(${target} PRIVATE ${CG_LINK} ${CMAKE_DL_LIBS} pthread)
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/${CG_DIRECTORY}")
  set_target_properties(
    ${target} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME "${name}" NO_SONAME "${CG_NO_SONAME}"
                         BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${CG_RPATH}"
                         RUNTIME_OUTPUT_DIRECTORY "${directory}" LIBRARY_OUTPUT_DIRECTORY "${directory}")
endfunction()

# cg_only_for_all(<target>...): only scripts/test --all needs these, not scripts/test.
function(cg_only_for_all)
  set_property(GLOBAL APPEND PROPERTY CG_ALL_ONLY ${ARGN})
endfunction()

# cg_custom_program(<name> <source> <command>...) makes a program by this command, with -o.
function(cg_custom_program name source)
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  add_custom_command(OUTPUT "${file}" DEPENDS "${source}" VERBATIM
                     COMMAND ${ARGN} -o "${file}" "${source}")
  add_custom_target(${CG_PREFIX}${name} ALL DEPENDS "${file}")
endfunction()

# cg_runtime(<id>) sets `shared` and `static` to the options that link a program to the runtime that
# scripts/fetch-cuda has put into <CG_DEPS>/cuda-<id>. Each is empty if that runtime is missing. The
# tests then skip, or fail if they must run.
macro(cg_runtime id)
  set(toolkit "${CG_DEPS}/cuda-${id}")
  file(GLOB shared "${toolkit}/lib/libcudart.so.[0-9]*")
  file(GLOB static "${toolkit}/lib/libcudart_static.a")
  foreach(kind shared static)
    if(${kind} AND EXISTS "${toolkit}/include/cuda_runtime_api.h")
      # The wheels of the older major versions lack crt/host_defines.h, so the newest one's is used.
      list(GET ${kind} 0 ${kind})
      set(${kind} LINK "${${kind}}" HEADERS "${toolkit}/include"
                  "${CG_DEPS}/cuda-13/include")
    else()
      set(${kind} "")
    endif()
  endforeach()
endmacro()

# cg_link(<link> <target>) makes a symbolic link in the build tree.
function(cg_link link to)
  get_filename_component(directory "${link}" DIRECTORY)
  file(MAKE_DIRECTORY "${directory}")
  file(CREATE_LINK "${to}" "${link}" SYMBOLIC)
endfunction()
