// SPDX-License-Identifier: Apache-2.0
// Defines the names that the guard looks up in a libpython, with a version that it does not know.
int cg_initialized = 1;
int PyCode_Type;

void* PyGILState_GetThisThreadState(void) { return &PyCode_Type; }
const char* Py_GetVersion(void) { return "0"; }
int Py_IsInitialized(void) { return cg_initialized; }
int PyCode_Addr2Line(void* code, int instruction) { return code != 0 ? instruction : 0; }
void* PyInterpreterState_Head(void) { return 0; }
