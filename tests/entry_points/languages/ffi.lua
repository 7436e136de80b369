-- SPDX-License-Identifier: Apache-2.0
-- ffi.lua cuda|nvml LIBRARY: opens the driver as LuaJIT programs do and prints what it answers.
local ffi = require("ffi")

ffi.cdef [[
int cuInit(unsigned int flags);
int cuDeviceGetCount(int* count);
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned int* count);
]]
local api, library = arg[1], arg[2]
local handle = ffi.load(library)
if api == "cuda" then
  local count = ffi.new("int[1]", -7)
  local init = handle.cuInit(0)
  print(string.format("cuInit=%d countRc=%d", init, handle.cuDeviceGetCount(count)))
else
  local count = ffi.new("unsigned int[1]", 77)
  local init = handle.nvmlInit_v2()
  local rc = handle.nvmlDeviceGetCount_v2(count)
  print(string.format("nvmlInit=%d countRc=%d count=%d", init, rc, count[0]))
end
