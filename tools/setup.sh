#!/usr/bin/env bash
# Checks the system and installs the tools into .venv; `make setup` calls it when its inputs changed.
# As root, it installs missing packages; otherwise it prints the command.
# PYTHON=python3.13 chooses the interpreter, CXX=clang++ the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

has_cxx20() {
    printf '#include <atomic>\n#include <span>\nint i; int main() { return std::atomic_ref(i).load(); }' |
        "${CXX:-c++}" -std=c++20 -x c++ -o /dev/null - 2>/dev/null
}

# Prints the missing Debian packages, one per line.
missing_packages() {
    local python version
    has_cxx20 || echo g++
    has_jdk || echo default-jdk-headless
    if python=$(find_python); then
        version=$("$python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
        "$python" -c 'import os, sysconfig
os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null || echo "python$version-dev"
    elif command -v python3 >/dev/null; then # too old, as on Ubuntu 22.04
        printf '%s\n' python3.11 python3.11-venv python3.11-dev
    else
        printf '%s\n' python3 python3-venv python3-dev
    fi
}

# At most twice: Ubuntu 22.04 without python3 first gets 3.10, which then proves too old.
for attempt in 1 2 3; do
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || break
    if ! can_install; then
        echo "setup: Tapewire needs a C++20 compiler, a JDK 17 or newer (for Spark), and Python 3.11 or newer with venv and headers." >&2
        echo "setup: please run: sudo apt-get update && sudo apt-get install ${missing[*]}" >&2
        exit 1
    elif ((attempt == 3)); then
        echo "setup: still missing after installation: ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    apt_install "${missing[@]}"
done

if ! .venv/bin/python -c '' 2>/dev/null; then
    echo "setup: creating .venv"
    "$(find_python)" -m venv --clear .venv
fi
echo "setup: installing the tools pinned in constraints.txt"
# pip first: the system's pip may be too old for --group.
.venv/bin/python -m pip install --quiet -c constraints.txt --upgrade pip
.venv/bin/python -m pip install --quiet -c constraints.txt --group dev
