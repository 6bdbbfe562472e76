#!/usr/bin/env bash
# Usage: tools/test_tools.sh FILE
# Installs the programs that some tests use, if run as root. Without a program, its tests are skipped.
# FILE lists the missing ones; `make test` prints it at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

declare -A packages=(
    [strace]=strace
    [spin]=spin
    [redis-server]=redis-server
    [nats-server]=nats-server
    [valgrind]=valgrind
    [mkfs.ext4]=e2fsprogs
    [clang]="clang libclang-rt-dev"
    [chromium]=chromium
    [prometheus]=prometheus
    [systemd-analyze]=systemd
)

has() {
    case $1 in
        # Debian's clang lacks the sanitizer runtimes, so check that one links.
        clang) clang++ -fsanitize=address -x c++ -o /dev/null - <<<'int main() {}' 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

: >"$1"
for tool in "${!packages[@]}"; do
    has "$tool" && continue
    if can_install; then
        for package in ${packages[$tool]}; do
            echo "test: installing $package"
            apt_install "$package" || echo "test: could not install $package" >&2
        done
    fi
    has "$tool" || echo "$tool (${packages[$tool]})" >>"$1"
done

# Not installed here: 900 MB, used only by `make bench`.
[[ -e build/book-alternatives/.stamp ]] || echo "hftbacktest, nautilus_trader (make book-alternatives)" >>"$1"
