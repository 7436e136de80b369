# SPDX-License-Identifier: Apache-2.0
# Usage: cmake -DOUT=FILE -DDRIVER=FILE -DNVML=FILE -P null_driver_sizes.cmake
# Writes the sizes of the null drivers that this guard was built with. A file of that size is
# complete. The guard inspects a file of any other size, because the file may have been stripped.
file(SIZE "${DRIVER}" driver_size)
file(SIZE "${NVML}" nvml_size)
file(WRITE "${OUT}.new" "#define CG_DRIVER_SIZE ${driver_size}\n#define CG_NVML_SIZE ${nvml_size}\n")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
