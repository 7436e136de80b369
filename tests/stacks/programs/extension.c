// SPDX-License-Identifier: Apache-2.0
// A Python module in C: held(address) calls cuInit with Python's lock, released(address) without
// it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef int (*Init)(unsigned);

static PyObject* held(PyObject* module, PyObject* address) {
  (void)module;
  return PyLong_FromLong(((Init)PyLong_AsVoidPtr(address))(0));
}

static PyObject* released(PyObject* module, PyObject* address) {
  (void)module;
  const Init init = (Init)PyLong_AsVoidPtr(address);
  int answer;
  Py_BEGIN_ALLOW_THREADS;
  answer = init(0);
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(answer);
}

static PyMethodDef methods[] = {
    {"held", held, METH_O, NULL}, {"released", released, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "cg_extension", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_cg_extension(void) { return PyModule_Create(&module); }
