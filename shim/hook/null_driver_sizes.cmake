# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=FILE -DDRIVER=FILE -DNVML=FILE -P null_driver_sizes.cmake: how long the null drivers
# are that this guard was built with. A file of that length is whole; any other is looked at
# (stripped, perhaps).
file(SIZE "${DRIVER}" driver_size)
file(SIZE "${NVML}" nvml_size)
file(WRITE "${OUT}.new" "#define CG_DRIVER_SIZE ${driver_size}\n#define CG_NVML_SIZE ${nvml_size}\n")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
