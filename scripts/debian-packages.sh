#!/usr/bin/env bash
# Installs Debian packages that are missing, without starting the services they bring.
# usage: debian-packages.sh [PACKAGE...]    (without any: those of debian-packages.txt)
set -euo pipefail

list=$(dirname "$0")/debian-packages.txt
policy=/usr/sbin/policy-rc.d
mark="placed by joblock for the time of one installation"

packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
  mapfile -t packages < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$list")
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "No apt-get here: what these Debian packages bring must be there already: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Only root can install Debian packages (${missing[*]}), and there is no sudo" >&2
    exit 1
  fi
  echo "Debian packages are missing, and sudo is asked to install them"
  exec sudo -- "$0" "${missing[@]}"
fi

echo "Installing Debian packages: ${missing[*]}"
log=$(mktemp)
placed=
finish() {
  rm -f "$log"
  if [ -n "$placed" ]; then rm -f "$policy"; fi
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# Exit code 101 from this file is Debian's way to say: start no services. Somebody else's stays.
if [ ! -e "$policy" ] || grep -qF "$mark" "$policy"; then
  placed=yes
  printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
  chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt() { # what it says matters only when it fails
  if ! apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}
apt update
apt install --yes --no-install-recommends "${missing[@]}"
