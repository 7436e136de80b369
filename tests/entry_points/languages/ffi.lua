-- SPDX-License-Identifier: Apache-2.0
-- ffi.lua LIBRARY: opens the driver as LuaJIT programs do and prints what it answers.
local ffi = require("ffi")

ffi.cdef [[
int cuInit(unsigned int flags);
int cuDeviceGetCount(int* count);
]]
local handle = ffi.load(arg[1])
local count = ffi.new("int[1]", -7)
local init = handle.cuInit(0)
print(string.format("cuInit=%d countRc=%d", init, handle.cuDeviceGetCount(count)))
