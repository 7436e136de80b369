# SPDX-License-Identifier: Apache-2.0
# Makes include/page.inc: the HTML page of print/page/ as one literal for page.cpp, with its style
# sheet and its script. Its content security policy allows only these two.

# The base64 of the SHA-256 of a text, as in a policy. CMake itself makes only hexadecimal hashes.
function(cg_policy_hash result text)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 hash "${text}")
  set(base64 "")
  # Encodes 32 bytes and a zero, three at a time.
  foreach(at RANGE 0 60 6)
    string(SUBSTRING "${hash}00" ${at} 6 bytes)
    foreach(shift 18 12 6 0)
      math(EXPR place "(0x${bytes} >> ${shift}) & 63")
      string(SUBSTRING "${digits}" ${place} 1 digit)
      string(APPEND base64 "${digit}")
    endforeach()
  endforeach()
  string(REGEX REPLACE ".$" "=" base64 "${base64}")
  set(${result} "sha256-${base64}" PARENT_SCOPE)
endfunction()

file(READ print/page/page.css style)
file(READ print/page/page.js script)
cg_policy_hash(style_hash "${style}")
cg_policy_hash(script_hash "${script}")
configure_file(print/page/page.html include/page.html @ONLY)
file(READ "${CMAKE_CURRENT_BINARY_DIR}/include/page.html" page)
file(CONFIGURE OUTPUT include/page.inc CONTENT "R\"page(@page@)page\"\n" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS print/page/page.css
             print/page/page.js)
