// SPDX-License-Identifier: Apache-2.0
// A character set module that is linked to the driver. It converts every character to the digit "0"
// if cuInit succeeds, and otherwise to "1".
#include <gconv.h>
#include <stdint.h>

int cuInit(unsigned flags);

int gconv_init(struct __gconv_step* step) {
  step->__min_needed_from = step->__max_needed_from = sizeof(uint32_t);
  step->__min_needed_to = step->__max_needed_to = 1;
  step->__stateful = 0;
  step->__data = (void*)(intptr_t)(cuInit(0) == 0 ? '0' : '1');
  return __GCONV_OK;
}

// This is the last step of a conversion from any other set, so it passes nothing on.
int gconv(struct __gconv_step* step, struct __gconv_step_data* data, const unsigned char** input,
          const unsigned char* end, unsigned char** output, size_t* irreversible, int flush,
          int consume_incomplete) {
  (void)output, (void)irreversible, (void)consume_incomplete;
  if (flush) return __GCONV_OK;
  while ((size_t)(end - *input) >= sizeof(uint32_t)) {
    if (data->__outbuf == data->__outbufend) return __GCONV_FULL_OUTPUT;
    *data->__outbuf++ = (unsigned char)(intptr_t)step->__data;
    *input += sizeof(uint32_t);
  }
  return *input == end ? __GCONV_EMPTY_INPUT : __GCONV_INCOMPLETE_INPUT;
}
