// SPDX-License-Identifier: Apache-2.0
// An addon for Node whose ask() loads the driver and returns cuInit's answer.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

// These come from Node's <node_api.h>, whose binary interface is stable. The program defines them.
typedef void* napi_env;
typedef void* napi_value;
typedef napi_value (*napi_callback)(napi_env env, void* info);
int napi_create_int32(napi_env env, int32_t number, napi_value* value);
int napi_create_function(napi_env env, const char* name, size_t length, napi_callback function,
                         void* data, napi_value* value);
int napi_set_named_property(napi_env env, napi_value object, const char* name, napi_value value);

static napi_value ask(napi_env env, void* info) {
  (void)info;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
  napi_value answer = NULL;
  napi_create_int32(env, init ? init(0) : -1, &answer);
  return answer;
}

napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value function = NULL;
  napi_create_function(env, "ask", 3, ask, NULL, &function);
  napi_set_named_property(env, exports, "ask", function);
  return exports;
}
