#!/usr/bin/env bash
# Checks the protocol's model in all its variants, or shows how one of them ends.
# usage: check.sh              all of them; fails unless each ends as the list below says
#        check.sh show NAME    the history that refutes it, as the model tells it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# One variant a line: its name; how it must end; the macros it is built with (see clients.pml, or
# runs.pml for those with JOBS).
#   holds    every state was visited, and no property fails
#   refuted  a state breaks a property (an assertion)
#   starves  a live waiter waits for ever, though everybody who can go on does
# LIVE asks for the latter too, under weak fairness.
variants() {
  sed 's/#.*//; /^ *$/d' <<'END'
# Without faults, and without any timer or check: nobody misses a wake-up.
mutex-quiet           holds    LIVE N=4 GIVE_UPS=1
weights-quiet         holds    LIVE N=4 GIVE_UPS=1 WEIGHTS
two-steps             holds    LIVE N=3 GIVE_UPS=1 TWO_STEPS
two-steps-once        starves  LIVE N=3 GIVE_UPS=1 TWO_STEPS BREAK_TRY_AGAIN

# With faults: nobody is forgotten.
mutex                 holds    LIVE N=3 CHECKS=1 FAULTS=1
mutex-two             holds    LIVE N=2 CHECKS=1 FAULTS=2 GIVE_UPS=1
mutex-old-checks      holds    LIVE N=2 CHECKS=2 FAULTS=1 GIVE_UPS=1
weights               holds    LIVE N=3 CHECKS=1 FAULTS=1 WEIGHTS
one-client            holds    LIVE N=3 CHECKS=1 FAULTS=1 ONE_CLIENT
one-client-old-checks holds    LIVE N=2 CHECKS=2 FAULTS=2 ONE_CLIENT
take-over             holds    LIVE N=2 CHECKS=1 FAULTS=2 TAKE_OVER
no-checks             starves  LIVE N=3 FAULTS=1

# With more faults: exclusion, order, nobody overtaken, nobody parked without a trace.
mutex-faults          holds    N=3 CHECKS=1 FAULTS=2
mutex-gives-up        holds    N=3 CHECKS=1 FAULTS=1 GIVE_UPS=1
mutex-four            holds    N=4 CHECKS=1 FAULTS=1
weights-faults        holds    N=3 CHECKS=1 FAULTS=2 WEIGHTS
one-client-faults     holds    N=3 CHECKS=1 FAULTS=2 ONE_CLIENT

# Tokens, and handles that come late.
tokens                holds    N=2 ROUNDS=2 FAULTS=2 TOKENS
tokens-weights        holds    N=3 ROUNDS=2 FAULTS=1 TOKENS WEIGHTS
tokens-of-permits     refuted  N=3 ROUNDS=2 TOKENS WEIGHTS PERMIT_TOKENS

# Jobs: runs that are joined, grace, and ticks that are run once.
occurrences-quiet     holds    LIVE JOBS N=3 ROUNDS=1 OCCURRENCES GIVE_UPS=1
occurrences           holds    LIVE JOBS N=2 ROUNDS=2 OCCURRENCES FAULTS=1
occurrences-faults    holds    JOBS N=3 ROUNDS=1 OCCURRENCES FAULTS=2
joins-quiet           holds    LIVE JOBS N=3 ROUNDS=1 JOIN GRACE
joins                 holds    LIVE JOBS N=2 ROUNDS=2 JOIN GRACE OCCURRENCES FAULTS=1
joins-faults          holds    JOBS N=3 ROUNDS=1 JOIN GRACE FAULTS=2 GIVE_UPS=1
joins-of-occurrences  holds    JOBS N=3 ROUNDS=1 JOIN GRACE OCCURRENCES FAULTS=1

# One rule broken each.
serve-after-release   refuted  N=3 BREAK_SERVE_AFTER_RELEASE
serve-after-leave     refuted  N=3 GIVE_UPS=1 BREAK_SERVE_AFTER_LEAVE
serve-after-lapse     refuted  N=4 CHECKS=1 FAULTS=1 WEIGHTS BREAK_SERVE_AFTER_LAPSE
claims-count          refuted  N=3 BREAK_CLAIMS_COUNT
barge                 refuted  N=3 WEIGHTS BREAK_BARGE
heavy-waits           refuted  N=3 WEIGHTS BREAK_HEAVY_WAITS
token                 refuted  N=2 ROUNDS=2 FAULTS=2 TOKENS BREAK_TOKEN
refresh-fits          refuted  N=3 FAULTS=2 PERMITS BREAK_REFRESH_FITS
hear-before-asking    starves  LIVE N=2 BREAK_HEAR_BEFORE_ASKING
strike                refuted  N=3 CHECKS=1 FAULTS=1 BREAK_STRIKE
unpark                refuted  N=3 CHECKS=1 FAULTS=1 BREAK_UNPARK
lapse-first           refuted  N=3 CHECKS=1 FAULTS=1 BREAK_LAPSE_FIRST
epoch                 starves  LIVE N=3 CHECKS=1 FAULTS=1 ONE_CLIENT BREAK_EPOCH
epoch-of-each         refuted  N=3 CHECKS=1 FAULTS=1 ONE_CLIENT BREAK_EPOCH_OF_EACH
take-over-row         refuted  N=2 CHECKS=1 FAULTS=1 TAKE_OVER BREAK_TAKE_OVER
done                  refuted  JOBS N=3 ROUNDS=1 OCCURRENCES BREAK_DONE
done-at-confirm       refuted  JOBS N=3 ROUNDS=1 OCCURRENCES BREAK_DONE_AT_CONFIRM
serve-after-done      refuted  JOBS N=3 ROUNDS=1 OCCURRENCES BREAK_SERVE_AFTER_DONE
join-in-grace         refuted  JOBS N=2 ROUNDS=1 JOIN GRACE BREAK_JOIN_IN_GRACE
parked-joiners        refuted  JOBS N=3 ROUNDS=1 JOIN FAULTS=1 BREAK_PARKED_JOINERS
last-chance           refuted  JOBS N=3 ROUNDS=1 JOIN GIVE_UPS=1 BREAK_LAST_CHANCE
END
}

enter_folder() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  trap 'exit 130' HUP INT TERM
  cd "$folder"
}

model_of() { # MACROS...
  if [[ " $* " == *" JOBS "* ]]; then echo runs.pml; else echo clients.pml; fi
}

# Build and run in the current, empty folder; the verifier's report is in the file "report". The
# limits, 3 GB and a minute of processor time, are far above what any variant takes.
verify() { # WANTED MACROS...
  local macros=("${@:2}") flags=(-E)
  local build=(-w -DCOLLAPSE -DVECTORSZ=512 -DMEMLIM=3000)
  macros=("${macros[@]/#/-D}")
  if [ "$1" = holds ]; then
    build+=(-O1) # long enough a search to be worth it
  fi
  if [ "$2" = LIVE ]; then
    build+=(-DNFAIR=3)
    flags+=(-a -f)
  else
    build+=(-DSAFETY)
    [[ " $* " != *" SHORTEST "* ]] || build+=(-DBFS)
  fi
  cp "$here"/*.pml .
  spin "${macros[@]}" -a "$(model_of "$@")" >translation 2>&1 || return
  gcc "${build[@]}" -o pan pan.c || return
  (ulimit -t 60 && exec ./pan "${flags[@]}" -m1000000 -w22) >report 2>&1
}

# How it ended: a word of the list, or what kept it from ending.
verdict() { # (of the file "report")
  if grep -qE 'max search depth|out of memory|Search not completed' report &&
    ! grep -q 'pan:1:' report; then
    echo truncated
  elif grep -q 'pan:1: assertion violated' report; then
    echo refuted
  elif grep -q 'pan:1: acceptance cycle' report; then
    echo starves
  elif grep -q 'errors: 0$' report; then
    echo holds
  else
    echo failed
  fi
}

one() { # NAME VERDICT MACROS...
  local name=$1 wanted=$2 begin=$SECONDS states got=failed
  enter_folder
  if verify "${@:2}"; then got=$(verdict); fi
  states=$(awk '/states, stored/ { print $1; exit }' report 2>/dev/null || true)
  printf '%-22s %9s states  %-9s %3d s' "$name" "${states:-no}" "$got" $((SECONDS - begin))
  if [ "$got" = "$wanted" ]; then
    echo
  else
    printf '   WRONG: should be "%s"\n' "$wanted"
    [ "$got" != failed ] || tail -n 20 report translation >&2 || true
    return 1
  fi
}

show() { # NAME
  local line macros
  line=$(variants | awk -v name="$1" '$1 == name')
  [ -n "$line" ] || {
    echo "no variant is called $1; there are:" "$(variants | awk '{ printf "%s ", $1 }')" >&2
    exit 64
  }
  read -r -a macros <<<"$line"
  enter_folder
  case ${macros[1]} in
    refuted) macros+=(SHORTEST) ;;
    holds)
      echo "$1 is to hold: if it does not, say \"refuted\" or \"starves\" in its line to see why"
      return
      ;;
  esac
  verify "${macros[@]:1}"
  grep 'pan:1:' report || {
    echo "$1 holds: there is nothing to show" >&2
    return 1
  }
  macros=("${macros[@]:2}")
  spin "${macros[@]/#/-D}" -t -B -T "$(model_of "${macros[@]}")" | grep -vE '^$|^ltl |^Never claim'
}

for tool in spin gcc; do
  command -v "$tool" >/dev/null || {
    echo "$tool is missing; on Debian: apt-get install spin gcc libc6-dev" >&2
    exit 69
  }
done
case ${1:-all} in
  all) variants | xargs -P "$(nproc)" -L 1 "$0" one ;;
  one) one "${@:2}" ;;
  show) show "${2:?usage: check.sh show NAME}" ;;
  *)
    sed -n '2,4s/^# //p' "$0" >&2
    exit 64
    ;;
esac
