# SPDX-License-Identifier: Apache-2.0
# Part of `cmake --install`: makes the folders that are not there yet, readable by all. CMake's own
# would have the umask of who installs, and with 077 nobody else's programs found the null drivers.
foreach(folder IN LISTS CUDAGUARD_FOLDERS)
  if(NOT IS_ABSOLUTE "${folder}")
    set(folder "${CMAKE_INSTALL_PREFIX}/${folder}")
  endif()
  get_filename_component(path "$ENV{DESTDIR}${folder}" ABSOLUTE)
  set(missing "")
  while(NOT EXISTS "${path}")
    list(PREPEND missing "${path}")
    get_filename_component(path "${path}" DIRECTORY)
  endwhile()
  foreach(path IN LISTS missing)
    file(MAKE_DIRECTORY "${path}")
    file(CHMOD "${path}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                     WORLD_READ WORLD_EXECUTE)
  endforeach()
endforeach()
