# shellcheck shell=sh disable=SC2034
# What TabFT is built and tested with on Debian 12, and how to get it. Sourced by jobs/quickstart and tests/run.

TABFT_BUILD_PACKAGES="gcc make autoconf automake pkg-config libc6-dev
    zlib1g-dev libdeflate-dev libjansson-dev nettle-dev libxxhash-dev libopenblas-dev
    libpmix-dev libopenmpi-dev openmpi-bin"
TABFT_TEST_PACKAGES="check g++ git slurm-wlm slurmd slurmctld slurm-client munge
    shellcheck mandoc strace python3 xz-utils file"
# What only `make check-long` needs: the fuzzers' compiler.
TABFT_LONG_TEST_PACKAGES="clang libclang-rt-14-dev"

# packages_missing NAME...: prints the ones that are not installed.
packages_missing() {
    for package_name in "$@"; do
        case $(dpkg-query -W -f '${Status}' "$package_name" 2>/dev/null) in
        *'ok installed') ;;
        *) printf '%s ' "$package_name" ;;
        esac
    done
}

# packages_need NAME...: installs what is missing where root or sudo allows; otherwise names it and fails with status 4.
packages_need() {
    if ! command -v dpkg-query >/dev/null 2>&1; then
        printf 'Not a Debian system: what is installed cannot be checked; configure will name what it misses\n' >&2
        return 0
    fi
    packages_absent=$(packages_missing "$@")
    [ -n "$packages_absent" ] || return 0
    if [ "$(id -u)" = 0 ]; then
        packages_sudo=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        packages_sudo=sudo
    else
        printf 'These packages are missing; as root, run:\n  apt-get install %s\n' "$packages_absent" >&2
        return 4
    fi
    printf 'Installing %s\n' "$packages_absent" >&2
    # The words are package names, meant to be split.
    # shellcheck disable=SC2086
    $packages_sudo env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -qq && exec apt-get install -y -qq --no-install-recommends "$@"' sh $packages_absent >&2 || return 4
}
