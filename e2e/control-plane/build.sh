#!/bin/bash
# Builds the control plane that the end-to-end tests run against, unless it was built from exactly these sources.
# Prints the path of the binary. About four minutes on two cores with empty caches, no C compiler, Go 1.24 or newer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CONTROL_PLANE_CACHE:-$here/../../.cache/control-plane}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
cd "$here"

# Every flag is part of Go's cache key: changing one compiles all of Kubernetes again.
tags=kcm,kubectl
export CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false"

# Whoever comes second finds it built.
exec 9>"$cache/lock"
flock 9
hash=$(cat build.sh go.mod go.sum ./*.go | sha256sum | cut -c1-16)
out=$cache/$hash/control-plane
if [[ -x $out ]]; then
    echo "$out"
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "control plane: Go is needed to build it (https://go.dev/dl), and no go is on the PATH" >&2
    exit 3
fi
echo "control plane: building etcd and kube-apiserver (about four minutes the first time)" >&2
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    flags+=" -X $package.gitTreeState=archive"
done
mkdir -p "$cache/$hash"
go build -trimpath -tags "$tags" -gcflags=all=-dwarf=false -ldflags "$flags" -o "$out.new" . >&2
mv "$out.new" "$out"
# Older builds are of no use to anybody.
find "$cache" -mindepth 1 -maxdepth 1 ! -name "$hash" ! -name lock -exec rm -rf {} +
echo "$out"
