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

echo "Debian packages to install: ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Only root can install them: run this as root, or install sudo." >&2
    exit 1
  fi
  exec sudo -- "$0" "${missing[@]}"
fi

# Exit code 101 from this file is Debian's way to say: start no services. Somebody else's stays.
if [ ! -e "$policy" ] || grep -qF "$mark" "$policy"; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
  chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
options=(-q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
apt-get "${options[@]}" update
apt-get "${options[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null
