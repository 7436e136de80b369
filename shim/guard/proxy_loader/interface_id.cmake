# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=interface_id.h -P interface_id.cmake
# Makes a number that is the same for a guard and a proxy built from the same headers, and differs
# otherwise. It depends on neither the directory nor the time of the build.
get_filename_component(checkout "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(guard "${checkout}/shim/guard")
file(GLOB headers "${checkout}/policy/*.h" "${guard}/text/*.h" "${guard}/sys/*.h" "${guard}/elf/*.h"
     "${guard}/state/*.h" "${guard}/*/state.h" "${checkout}/shim/proxy/state.h" "${guard}/record/*.h"
     "${guard}/explain/*.h" "${guard}/proxy_loader/*.h")
foreach(header IN LISTS headers)
  file(SHA256 "${header}" hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING "${id}" 0 8 id)
# The same number leaves the file as it is, so that nothing is compiled again.
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#pragma once\n#define CUDAGUARD_INTERFACE_ID 0x${id}U\n")
