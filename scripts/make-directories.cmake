# SPDX-License-Identifier: Apache-2.0
# Part of `cmake --install`. Makes the missing directories readable by all users. CMake itself would
# use the installing user's umask. With 077, other users' programs would not find the null drivers.
foreach(directory IN LISTS CUDAGUARD_DIRECTORIES)
  if(NOT IS_ABSOLUTE "${directory}")
    set(directory "${CMAKE_INSTALL_PREFIX}/${directory}")
  endif()
  get_filename_component(path "$ENV{DESTDIR}${directory}" ABSOLUTE)
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
