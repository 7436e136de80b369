# SPDX-License-Identifier: Apache-2.0
# The programs and plug-ins of test_semantics.py.
set(BEHAVE_DIR "${GUEST_DIR}/behave")

# cg_behave_plugin(<name> <definition> <run path> <folder>)
function(cg_behave_plugin name definition run_path folder)
  cg_guest_library(${name} programs/plugin.cpp)
  target_compile_definitions(guest_${name} PRIVATE ${definition})
  set_target_properties(guest_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${folder}" INSTALL_RPATH
                                                 "${run_path}")
  target_link_options(guest_${name} PRIVATE -Wl,--enable-new-dtags)
endfunction()

cg_behave_plugin(libcgrunpath PLUGIN_VALUE=11 "" "${BEHAVE_DIR}")
cg_behave_plugin(libcgorigin PLUGIN_VALUE=12 "" "${BEHAVE_DIR}")
cg_behave_plugin(libcginner PLUGIN_VALUE=13 "" "${BEHAVE_DIR}/inner")
cg_behave_plugin(libcgnested PLUGIN_NESTED "$ORIGIN/inner" "${BEHAVE_DIR}")
cg_behave_plugin(libcgchain1 PLUGIN_CHAIN=1 "" "${BEHAVE_DIR}")
cg_behave_plugin(libcgchain2 PLUGIN_CHAIN=2 "" "${BEHAVE_DIR}")
cg_behave_plugin(libcgundefined PLUGIN_UNDEFINED "" "${BEHAVE_DIR}")
cg_behave_plugin(libcgthrows PLUGIN_THROWS "" "${BEHAVE_DIR}")
cg_behave_plugin(libcgleaves PLUGIN_LEAVES "" "${BEHAVE_DIR}")
file(MAKE_DIRECTORY "${BEHAVE_DIR}")
string(REPEAT "this is no library\n" 100 not_elf)
file(WRITE "${BEHAVE_DIR}/not-elf.so" "${not_elf}")

foreach(level O0 O2)
  cg_guest_program(behave_${level} programs/behave.cpp)
  target_compile_options(guest_behave_${level} PRIVATE -${level})
  target_link_options(guest_behave_${level} PRIVATE -Wl,--enable-new-dtags,--no-as-needed)
  target_link_libraries(guest_behave_${level} PRIVATE guest_libcgchain1 guest_libcgchain2)
  set_target_properties(guest_behave_${level} PROPERTIES INSTALL_RPATH "$ORIGIN/behave")
endforeach()
