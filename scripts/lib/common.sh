# Shared by scripts/* and .ci/run: messages, packages, configure and build. Sourced, not run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lib="$root/scripts/lib"

say() { printf '%s\n' "== $*"; }
fail() {
  printf '%s\n' "error: $*" >&2
  exit 1
}

# Packages of the named groups, from the one list.
packages_of() {
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group { print $2 }' "$lib/packages.txt"
  done
}

# Those of the named groups that dpkg does not report as installed.
missing_packages() {
  local package
  for package in $(packages_of "$@"); do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      printf '%s\n' "$package"
    fi
  done
}

# Installs what is missing, and says what. Touches the network only when something is missing.
install_packages() {
  command -v dpkg-query >/dev/null || {
    say "no dpkg here: assuming that these are installed: $(packages_of "$@" | xargs)"
    return 0
  }
  local missing as_root=()
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "missing packages and neither root nor sudo; install: $(xargs <<<"$missing")"
    as_root=(sudo)
  fi
  say "installing with apt: $(xargs <<<"$missing")"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed; is the network there?"
  # shellcheck disable=SC2086  # a list of names
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends $missing >/dev/null || fail "apt-get install failed"
}

# build_preset PRESET JOBS [TARGET...]: configures, then builds.
build_preset() {
  local preset=$1 jobs=$2
  shift 2
  local log="$root/build/$preset.configure.log"
  mkdir -p "$root/build"
  say "configuring preset $preset"
  (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    fail "configure failed; whole log: $log"
  }
  say "building preset $preset with $jobs jobs"
  cmake --build "$root/build/$preset" -j "$jobs" ${1:+--target "$@"}
}

# junit_summary FILE: "N passed, N failed, N skipped" from a ctest --output-junit file.
junit_summary() {
  local total failed skipped
  total=$(sed -n 's/.*[[:space:]]tests="\([0-9]*\)".*/\1/p' "$1" | head -n 1)
  failed=$(sed -n 's/.*failures="\([0-9]*\)".*/\1/p' "$1" | head -n 1)
  skipped=$(grep -c '<skipped' "$1" || true)
  printf '%s passed, %s failed, %s skipped\n' "$((total - failed - skipped))" "$failed" "$skipped"
}
