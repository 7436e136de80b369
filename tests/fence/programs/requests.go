// SPDX-License-Identifier: Apache-2.0

// requests FILE REQUEST...: as requests.c, by a program that calls no libc.
package main

import (
	"os"
	"strconv"
	"syscall"
)

func main() {
	file, _ := syscall.Open(os.Args[1], syscall.O_RDWR, 0)
	for _, word := range os.Args[2:] {
		request, _ := strconv.ParseUint(word, 16, 64)
		_, _, err := syscall.Syscall(syscall.SYS_IOCTL, uintptr(file), uintptr(request), 0)
		name := map[syscall.Errno]string{0: "0", syscall.ENOTTY: "ENOTTY", syscall.ENODEV: "ENODEV"}[err]
		os.Stdout.WriteString(word + " " + name + "\n")
	}
}
