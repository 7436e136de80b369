! SPDX-License-Identifier: Apache-2.0
! Asks for CUDA in a function of a module.
module devices
  use iso_c_binding
  interface
    integer(c_int) function cudaGetDeviceCount(count) bind(c, name="cudaGetDeviceCount")
      import c_int
      integer(c_int), intent(out) :: count
    end function
  end interface
contains
  subroutine ask()
    integer(c_int) :: count, answer
    answer = cudaGetDeviceCount(count)
    print *, answer
  end subroutine
end module
program simulation
  use devices
  call ask()
end program
