# Functions for Debian and Ubuntu, sourced by setup.sh and test_tools.sh.

can_install() { [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
    if [[ -z ${apt_updated:-} ]]; then
        apt-get update -qq
        apt_updated=yes
    fi
    without_daemons \
        env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Runs a command without starting daemons: Debian starts the daemon of a newly installed package
# (redis-server) unless this file forbids it. Containers already have the file.
without_daemons() (
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    "$@"
)

# Spark needs Java 17; "javac 17.0.15" is what javac -version prints.
has_jdk() {
    local version
    version=$(javac -version 2>&1) || return 1
    version=${version#javac }
    [[ ${version%%.*} -ge 17 ]]
}
