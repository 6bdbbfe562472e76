# Sourced by setup.sh and test_tools.sh: what both need to know about a Debian or Ubuntu machine.

can_install() { [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
    if [[ -z ${apt_updated:-} ]]; then
        apt-get update -qq
        apt_updated=yes
    fi
    without_daemons \
        env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Runs a command. A package whose program is a daemon (redis-server) would have it started at once;
# this file is where Debian asks whether it may. Containers have one already.
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
