#!/usr/bin/env bash
# joblock in five seconds: the same job started three times, on a file store.
set -euo pipefail

PATH=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH
folder=$(mktemp -d)
first=

finish() {
  if [ -n "$first" ]; then kill "$first" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

# The leases go to a file that is thrown away.
unset "${!JOBLOCK_@}"
export JOBLOCK_URL=sqlite:///$folder/locks.db

cd "$folder"
cat >prune.sh <<'END'
#!/bin/sh
touch running
echo "    prune: at work"
sleep 3
echo "    prune: done"
END
chmod +x prune.sh

say() { printf '\n%s\n' "$*"; }
prune() {
  echo "  \$ joblock run nightly-prune -- ./prune.sh"
  joblock run nightly-prune -- ./prune.sh </dev/null
}
expect() { # what, wanted exit code, code got
  echo "  exit code $3"
  if [ "$3" -ne "$2" ]; then
    echo "$1 should have ended with exit code $2" >&2
    exit 1
  fi
}

say "1. A job that takes three seconds starts under the lease \"nightly-prune\":"
prune &
first=$!
until [ -e running ]; do
  kill -0 "$first" 2>/dev/null || { wait "$first"; exit 1; }
  sleep 0.05
done

say "2. It is started again while it runs, as on a second machine. This start is refused:"
code=0
prune || code=$?
expect "The second start" 75 "$code"

say "3. The first run ends:"
code=0
wait "$first" || code=$?
first=
expect "The first run" 0 "$code"

say "4. Now the key is free, and a third start runs:"
code=0
prune || code=$?
expect "The third start" 0 "$code"

say "One run at a time. To share the leases between machines, point JOBLOCK_URL at their store."
