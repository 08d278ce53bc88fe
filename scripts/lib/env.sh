# Shared by the scripts: where things are built, and how what is missing gets installed.
# Sourced, never run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo"

# One target folder for every checkout: dependencies are built once on a machine.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${VESTIBULE_TARGET_DIR:-$HOME/.cache/vestibule/target}}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

# Tools that are not of the system (Node packages, Python venvs) live here, out of git.
export VESTIBULE_TOOLS="${VESTIBULE_TOOLS:-$repo/.tools}"

have() { command -v "$1" >/dev/null 2>&1; }

# install PROGRAM PACKAGE...: apt-get PACKAGEs when PROGRAM is missing and we may; returns 1 when
# it is still missing afterwards.
install() {
  local program=$1
  shift
  have "$program" && return 0
  local sudo=
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    sudo="sudo -n"
  fi
  have apt-get || return 1
  $sudo apt-get update -qq >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" \
    >/dev/null 2>&1 || true
  have "$program"
}
