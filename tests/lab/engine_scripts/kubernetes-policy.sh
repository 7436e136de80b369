# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Builds a program with the kube-apiserver's admission plug-in, from Debian's packages of its source.
grep -q . api__v1_openapi.json || {
  echo "run scripts/fetch-frameworks build/_deps platforms, for the schemas of pods"
  exit 1
}
mkdir schemas
mv api__v1_openapi.json schemas
export GO111MODULE=off GOPATH=/usr/share/gocode CGO_ENABLED=0
go build -o admit admit.go
