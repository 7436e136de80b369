// SPDX-License-Identifier: Apache-2.0
// Is linked to NVIDIA's OpenCL, and calls it.
void* clGetExtensionFunctionAddress(const char*);
int main(void) {
  return ((int (*)(unsigned, void*, unsigned*))clGetExtensionFunctionAddress(
      "clIcdGetPlatformIDsKHR"))(0, 0, 0);
}
