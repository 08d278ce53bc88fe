# Test tools that are no crates: a recent Node and pinned packages, installed
# once under $VESTIBULE_TOOLS (default: .tools in the repository). Sourced by
# the scripts that need them; installs nothing else and nowhere else.

source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
root=$repo
tools=$VESTIBULE_TOOLS
target=$CARGO_TARGET_DIR

# Says why, and ends the script.
die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# Makes sure of the program $1, from the system package $2 where that is possible.
need_command() {
  install "$1" "$2" || die "$1 is missing; install $2"
}

# Whether $1 is a Node of at least 22.19, which the suite and the clients need.
recent_node() {
  "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)' 2>/dev/null
}

# Sets $node, and puts it first in the path.
need_node() {
  need_command npm npm
  node=$(command -v node || true)
  if [ -z "$node" ] || ! recent_node "$node"; then
    local arch
    case $(uname -m) in
      x86_64) arch=x64 ;;
      aarch64) arch=arm64 ;;
      *) die "install Node 22.19 or later" ;;
    esac
    node=$tools/node/node_modules/node-linux-$arch/bin/node
    if ! recent_node "$node"; then
      mkdir -p "$tools/node"
      npm install --prefix "$tools/node" --no-package-lock --no-audit --no-fund --loglevel=error \
        "node-linux-$arch@22.23.5" >&2 || die "cannot install Node 22"
    fi
    recent_node "$node" || die "the installed Node does not run here; install Node 22.19 or later"
  fi
  export PATH=${node%/*}:$PATH
}

# Installs the packages of scripts/lib/$1 unless they are there: as the lock
# file says, or, without one, the exact versions of package.json.
need_packages() {
  local from=$root/scripts/lib/$1 to=$tools/$1 how=install list=package.json
  if [ -f "$from/package-lock.json" ]; then how=ci list=package-lock.json; fi
  if ! cmp -s "$from/$list" "$to/installed"; then
    rm -rf "$to"
    mkdir -p "$to"
    cp "$from"/package*.json "$to/"
    [ $how = ci ] || set -- "$1" --no-package-lock
    npm $how --prefix "$to" "${@:2}" --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
      die "cannot install the packages of $1"
    cp "$from/$list" "$to/installed"
  fi
}

# Installs a Python package, as NAME==VERSION, into an environment of its own
# and sets $python to that environment's interpreter.
need_python() {
  need_command python3 python3
  local to=$tools/python-$1
  python=$to/bin/python
  if [ ! -f "$to/installed" ]; then
    rm -rf "$to"
    if ! python3 -m venv "$to" >/dev/null 2>&1; then
      # Some systems keep a part of it in a package of its own, without a program to look for.
      install no-such-program python3-venv || true
      python3 -m venv "$to" >&2 || die "cannot make a Python environment"
    fi
    "$python" -m pip install --quiet --disable-pip-version-check "$1" >&2 || die "cannot install $1"
    touch "$to/installed"
  fi
}

# Builds the binary $2 of package $1.
need_binary() {
  cargo build --quiet --manifest-path "$root/Cargo.toml" -p "$1" --bin "$2" || die "cannot build $2"
}
