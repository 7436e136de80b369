// SPDX-License-Identifier: Apache-2.0

// cgo LIBRARY: opens the driver as Go programs do (cgo and dlfcn.h) and prints its answers.
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static int call_init(void* f) { return ((int (*)(unsigned))f)(0); }
static int call_count(void* f, int* count) { return ((int (*)(int*))f)(count); }
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

func find(handle unsafe.Pointer, name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	symbol := C.dlsym(handle, text)
	if symbol == nil {
		fmt.Fprintln(os.Stderr, C.GoString(C.dlerror()))
		os.Exit(1)
	}
	return symbol
}

func main() {
	library := C.CString(os.Args[1])
	defer C.free(unsafe.Pointer(library))
	handle := C.dlopen(library, C.RTLD_LAZY|C.RTLD_GLOBAL)
	if handle == nil {
		fmt.Fprintln(os.Stderr, C.GoString(C.dlerror()))
		os.Exit(1)
	}
	count := C.int(-7)
	init := C.call_init(find(handle, "cuInit"))
	rc := C.call_count(find(handle, "cuDeviceGetCount"), &count)
	fmt.Printf("cuInit=%d countRc=%d\n", init, rc)
}
