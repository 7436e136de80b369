#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# order_versions.sh LIBRARY: puts the definitions of dlopen and dlmopen without a version before
# those with one. ld.so takes the first definition in the symbol table that fits an import, and a
# linker puts definitions of one name in any order (thunks.S). They have one hash, so the hash table
# stays right when two of them change places.
set -eu
library=$1
symbols=$(LC_ALL=C "${READELF:-readelf}" -W --dyn-syms "$library")
sections=$(LC_ALL=C "${READELF:-readelf}" -W -S "$library" | tr '[]' '  ')

# Prints the offset of a section in the file.
offset_of() {
  echo "$sections" | while read -r _ name _ _ offset _; do
    if [ "$name" = "$1" ]; then printf '%d\n' "0x$offset"; fi
  done
}

# Prints SIZE bytes from OFFSET on.
bytes() { dd if="$library" bs=1 skip="$1" count="$2" 2>/dev/null; }

# exchange FIRST OFFSET SECOND SIZE: exchanges two entries of the table at OFFSET.
exchange() {
  one=$(($2 + $1 * $4))
  other=$(($2 + $3 * $4))
  bytes "$one" "$4" >"$library.one"
  bytes "$other" "$4" >"$library.other"
  dd if="$library.other" of="$library" bs=1 seek="$one" conv=notrunc 2>/dev/null
  dd if="$library.one" of="$library" bs=1 seek="$other" conv=notrunc 2>/dev/null
  rm "$library.one" "$library.other"
}

for name in dlopen dlmopen; do
  # Lines such as "  20: 0000000000008770    48 FUNC    GLOBAL DEFAULT   11 dlopen@GLIBC_2.34".
  first=$(echo "$symbols" | sed -n "s/^ *\([0-9]*\):.* $name\(@[^ ]*\)*\$/\1/p" | head -n 1)
  plain=$(echo "$symbols" | sed -n "s/^ *\([0-9]*\):.* $name\$/\1/p")
  if [ "$first" = "$plain" ]; then continue; fi
  exchange "$first" "$(offset_of .dynsym)" "$plain" 24
  exchange "$first" "$(offset_of .gnu.version)" "$plain" 2
done
