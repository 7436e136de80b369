# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { git clone -q --depth 1 https://github.com/nginx/nginx-tests work; }
build() { :; }
tests() { TEST_NGINX_BINARY=/usr/sbin/nginx each_file perl -- ./*.t; }
