// SPDX-License-Identifier: Apache-2.0
// A name service module that is linked to the driver. The user "cuda" has cuInit's answer as user
// id.
#include <errno.h>
#include <nss.h>
#include <pwd.h>
#include <string.h>

int cuInit(unsigned flags);

enum nss_status _nss_asks_getpwnam_r(const char* name, struct passwd* entry, char* buffer,
                                     size_t size, int* error) {
  if (strcmp(name, "cuda") != 0) return NSS_STATUS_NOTFOUND;
  if (size < sizeof "cuda") {
    *error = ERANGE;
    return NSS_STATUS_TRYAGAIN;
  }
  char* empty = buffer + strlen(strcpy(buffer, name));
  *entry = (struct passwd){.pw_name = buffer,
                           .pw_passwd = empty,
                           .pw_uid = (uid_t)cuInit(0),
                           .pw_gecos = empty,
                           .pw_dir = empty,
                           .pw_shell = empty};
  return NSS_STATUS_SUCCESS;
}
