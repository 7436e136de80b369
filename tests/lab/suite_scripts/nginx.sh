# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { clone nginx/nginx-tests; }
build() { :; }
tests() {
  export TEST_NGINX_BINARY=/usr/sbin/nginx TEST_NGINX_MODULES=/usr/lib/nginx/modules
  each_file perl -- ./*.t
}
