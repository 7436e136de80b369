# SPDX-License-Identifier: Apache-2.0
# fiddle.rb cuda|nvml LIBRARY opens the driver as Ruby programs do and prints its answers.
require "fiddle"

api, library = ARGV
handle = Fiddle.dlopen(library)
call = lambda do |name, *types|
  Fiddle::Function.new(handle[name], types, Fiddle::TYPE_INT)
end
count = Fiddle::Pointer.malloc(Fiddle::SIZEOF_INT, Fiddle::RUBY_FREE)
count[0, Fiddle::SIZEOF_INT] = [-7].pack("i")
if api == "cuda"
  init = call.("cuInit", Fiddle::TYPE_INT).call(0)
  rc = call.("cuDeviceGetCount", Fiddle::TYPE_VOIDP).call(count)
  puts "cuInit=#{init} countRc=#{rc}"
else
  init = call.("nvmlInit_v2").call
  rc = call.("nvmlDeviceGetCount_v2", Fiddle::TYPE_VOIDP).call(count)
  puts "nvmlInit=#{init} countRc=#{rc} count=#{count[0, Fiddle::SIZEOF_INT].unpack1('i')}"
end
