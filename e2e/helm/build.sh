#!/bin/bash
# Builds the helm that the tests of the chart run, unless it was built from exactly these files. Prints the path of the binary; ends
# with 3 where it can't be had: without Go, or without a module that go.sum names. About two minutes on two cores with empty caches.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HELM_CACHE:-$here/../../.cache/helm}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
cd "$here"

export CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false"
package=helm.sh/helm/v3/cmd/helm

# Whoever comes second finds it built.
exec 9>"$cache/lock"
flock 9
hash=$(cat build.sh go.mod go.sum | sha256sum | cut -c1-16)
out=$cache/$hash/helm
if [[ -x $out ]]; then
    echo "$out"
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "helm: Go is needed to build it (https://go.dev/dl), and no go is on the PATH" >&2
    exit 3
fi
if ! said=$(go list -deps "$package" 2>&1 >/dev/null); then
    echo "helm: its modules can't be fetched: ${said##*$'\n'}" >&2
    exit 3
fi
echo "helm: building it (about two minutes the first time)" >&2
mkdir -p "$cache/$hash"
go build -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w" -o "$out.new" "$package" >&2
mv "$out.new" "$out"
# Older builds are of no use to anybody.
find "$cache" -mindepth 1 -maxdepth 1 ! -name "$hash" ! -name lock -exec rm -rf {} +
echo "$out"
