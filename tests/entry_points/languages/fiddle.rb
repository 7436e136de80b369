# SPDX-License-Identifier: Apache-2.0
# fiddle.rb LIBRARY opens the driver as Ruby programs do and prints its answers.
require "fiddle"

handle = Fiddle.dlopen(ARGV[0])
call = lambda do |name, *types|
  Fiddle::Function.new(handle[name], types, Fiddle::TYPE_INT)
end
count = Fiddle::Pointer.malloc(Fiddle::SIZEOF_INT, Fiddle::RUBY_FREE)
count[0, Fiddle::SIZEOF_INT] = [-7].pack("i")
init = call.("cuInit", Fiddle::TYPE_INT).call(0)
rc = call.("cuDeviceGetCount", Fiddle::TYPE_VOIDP).call(count)
puts "cuInit=#{init} countRc=#{rc}"
