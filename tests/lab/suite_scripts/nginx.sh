# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { clone nginx/nginx-tests; }
build() { :; }
tests() { TEST_NGINX_BINARY=/usr/sbin/nginx each_file perl -- ./*.t; }
