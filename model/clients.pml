/* The clients of one key, what can happen to them, and the properties.
 *
 * here        there
 * Waiter      the flow of an acquisition, src/joblock/protocol/acquire.py: acquire_or_join and
 *             _Wait (ask, sleep, ask again, the last chance), then hold, refresh, release
 * told[h]     the flag of the waiter's ClientSeat, src/joblock/client/seat.py, set by Hub.deliver
 * known[h]    ClientSeat.epoch
 * Hub         the batched check: Keeper._check_keys and Keeper._tell_seats,
 *             src/joblock/client/keeper.py, for the seats of src/joblock/client/hub.py
 * Late        a handle whose lease was lost and whose holder has acquired again meanwhile
 * Env         time (leases, claims and presence run out) and faults: crashes, pauses, claims
 *             confirmed too late, lost notices, lost replies
 *
 * A waiter and the holder it becomes have one number, h; CLIENT(h) is the client it waits in.
 * Parameters (see check.sh): N waiters, which want the key again and again until they stop for
 * good; FAULTS, how many of the faults happen at most; GIVE_UPS; CHECKS=1 or 2, without which no
 * client checks; ROUNDS, how often each wants the key at most, and TOKENS, which needs it.
 */

/* ONE_CLIENT: waiters 0 and 1 are in client 0, the others in a client each.
 * TAKE_OVER: when client 0 has crashed, client N asks under the same holder.
 * ROW(h) is the client that h's rows in the store name. */
#if defined(ONE_CLIENT)
#define CLIENTS   (N - 1)
#define CLIENT(h) ((h) == 0 -> 0 : (h) - 1)
#define WAITS(c)  (wants[(c) + 1] || ((c) == 0 && wants[0]))
#elif defined(TAKE_OVER)
#define CLIENTS   (N + 1)
#define CLIENT(h) ((h) == 0 && crashed[0] -> N : (h))
#define WAITS(c)  ((c) == N -> crashed[0] && wants[0] : wants[(c) % N])
#else
#define CLIENTS   N
#define CLIENT(h) (h)
#define WAITS(c)  (wants[c])
#endif

#ifdef TAKE_OVER
byte by[N];
#define ROW(h)      (by[h])
#define asked_by(h) by[h] = CLIENT(h)
#else
#define ROW(h)      CLIENT(h)
#define asked_by(h) skip
#endif

/* WEIGHTS: waiter 0 takes the whole of two permits, the others take one.
 * PERMITS: all take one of two. */
#if defined(WEIGHTS)
#define WEIGHT(h) ((h) == 0 -> 2 : 1)
#define LIMIT(h)  2
#elif defined(PERMITS)
#define WEIGHT(h) 1
#define LIMIT(h)  2
#else
#define WEIGHT(h) 1
#define LIMIT(h)  1
#endif

#ifndef GIVE_UPS
#define GIVE_UPS 0
#endif
#ifndef FAULTS
#define FAULTS 0
#endif

/* How many may still happen. */
byte give_ups = GIVE_UPS;
byte faults = FAULTS;

bool crashed[CLIENTS];
bool paused[CLIENTS];
#define up(c) (!crashed[c] && !paused[c])
#define awake(h) (up(CLIENT(h)))

/* What a waiter knows. */
bool wants[N];  /* it is between its first request and its grant or its giving up */
bool asleep[N]; /* it was told to wait, and when it was: */
byte known[N];  /* the epoch it is queued under */
mtype reply[N]; /* on its way from the store */
bool sure[N];   /* it was granted the lease and has not been paused since */

#ifdef TOKENS
byte my_token[N];
byte stale[N];
#define token_of(h) my_token[h]
#else
#define token_of(h) 0
#endif

#include "store.pml"

hidden byte ahead;

/* ---- The properties that hold at each step ---- */

/* No older live waiter that fits is overtaken. Called before h has its lease. */
inline no_barging(h) {
    ahead = true;
    for (w : 0 .. N - 1) {
        if
        :: w >= waiters || line[w] == (h) -> ahead = false
        :: else
        fi;
        if
        :: ahead -> assert(parked[line[w]] || !present[ROW(line[w])] || kind[line[w]] == CLAIM)
        :: else
        fi
    }
}

/* What h was given fits under its own limit beside the live ones; an exclusive one is alone. */
inline admitted(h) {
    taken = 0;
    closed = false;
    for (k : 0 .. N - 1) {
        if
        :: k != (h) && runs(k) ->
            taken = taken + WEIGHT(k);
            closed = closed || exclusive(k)
        :: else
        fi
    }
    assert(!closed);
    assert(!exclusive(h) || taken == 0);
    assert(taken + WEIGHT(h) <= LIMIT(h))
}

/* Tokens grow: an exclusive lease's is above all before it, all after it are above it. */
inline granted(h) {
    sure[h] = true;
#ifdef TOKENS
    assert(token[h] > seen);
#ifdef PERMIT_TOKENS
    assert(token[h] > seen_share);
#endif
    if
    :: exclusive(h) ->
        assert(token[h] > seen_share);
        seen = token[h]
    :: else ->
        seen_share = (token[h] > seen_share -> token[h] : seen_share)
    fi
#endif
}

/* A refresh or release with token t had its effect: it was that very lease. */
inline touched(h, t) {
#ifdef TOKENS
    assert(token[h] == t)
#else
    skip
#endif
}

/* A waiter that was just told to wait can count on being served. */
inline not_forgotten(h) {
    in_line(h);
    assert(did && !parked[h] && ROW(h) == CLIENT(h) && present[CLIENT(h)])
}

/* At the end of each operation: nobody who could be served is not; nobody who holds a lease and
 * was never paused has lost it; and no waiter is parked without its client being able to tell. */
inline settled() {
    head = NOBODY;
    for (at : 0 .. N - 1) {
        if
        :: head == NOBODY && at < waiters && !parked[line[at]] && kind[line[at]] != CLAIM ->
            head = line[at]
        :: else
        fi
    }
    if
    :: head != NOBODY ->
        fits(head);
        assert(!fit)
    :: else
    fi;
    for (w : 0 .. N - 1) {
        assert(!sure[w] || (kind[w] == LEASE && !over[w]));
        assert(!(parked[w] && asleep[w] && present[CLIENT(w)] && known[w] == epoch[CLIENT(w)]))
    };
    skip /* for a d_step must not end with a loop */
}

/* ---- The processes ---- */

/* What h knows no more once it is granted, has given up or has crashed. */
inline forget(h) {
    wants[h] = false;
    asleep[h] = false;
    told[h] = 0;
    known[h] = 0;
    reply[h] = 0
}

#ifdef TOKENS
#define learn(h) my_token[h] = token[h]
#else
#define learn(h) skip
#endif

inline ask(h) {
    wants[h] = true;
    asleep[h] = false;
#ifndef BREAK_HEAR_BEFORE_ASKING
    told[h] = 0;
#endif
    acquire(h, true);
    reply[h] = answer;
    known[h] = (answer == BUSY -> epoch[CLIENT(h)] : 0);
#ifdef BREAK_EPOCH_OF_EACH
    for (w : 0 .. N - 1) {
        known[w] = (asleep[w] && CLIENT(w) == CLIENT(h) -> epoch[CLIENT(h)] : known[w])
    };
#endif
    skip
}

#define here (home == CLIENT(me) && up(home))

proctype Waiter(byte me; byte home) {
#ifdef ROUNDS
    byte rounds;
#endif
again:
    if
#ifdef ROUNDS
    :: rounds < ROUNDS -> rounds++
#else
    :: true
#endif
    :: goto enough /* or wants nothing any more, ever */
    fi;

#ifdef TWO_STEPS
    /* A store that cannot refuse and queue in one step: refused, then queued, then tried again. */
    if
    :: d_step { here -> wants[me] = true; acquire(me, false); reply[me] = answer }
    fi;
    if
    :: d_step { here && reply[me] == GRANTED -> learn(me); forget(me) };
        goto hold
    :: d_step { here && reply[me] == BUSY ->
            reply[me] = 0;
            report(CLIENT(me));
            enqueue(me);
            printf("%d is queued\n", me);
            known[me] = epoch[CLIENT(me)];
#ifdef BREAK_TRY_AGAIN
            asleep[me] = true
#endif
        }
    fi;
#endif

    do
    :: d_step { here && (asleep[me] -> told[me] != 0 : reply[me] == 0 || faults > 0) ->
            faults = (reply[me] == 0 -> faults : faults - 1); /* the reply is lost */
            ask(me)
        }
    :: d_step { here && reply[me] == BUSY ->
            reply[me] = 0;
#ifdef BREAK_HEAR_BEFORE_ASKING
            told[me] = 0;
#endif
            asleep[me] = true
        }
    :: d_step { here && reply[me] == GRANTED -> learn(me); forget(me) };
        break
#if GIVE_UPS > 0
    :: d_step { here && wants[me] && give_ups > 0 ->
            /* The last chance. */
            give_ups--;
            asleep[me] = false;
            acquire(me, true);
            reply[me] = answer
        };
        if
        :: d_step { here && reply[me] == GRANTED -> learn(me); forget(me) };
            break
        :: d_step { here && (reply[me] == BUSY || faults > 0) ->
                faults = (reply[me] == BUSY -> faults : faults - 1); /* the reply is lost */
                forget(me);
                sure[me] = false;
                leave(me)
            };
            goto again
        fi
#endif
    od;

hold:
    do
    :: d_step { here -> sure[me] = false; release(me, token_of(me)) };
        break
#if FAULTS > 0
    :: d_step { here && over[me] -> refresh(me, token_of(me)) }
#endif
#ifdef TOKENS
    :: d_step { here && !sure[me] && !runs(me) && stale[me] == 0 -> stale[me] = my_token[me] };
        break
#endif
    od;
#ifdef TOKENS
    my_token[me] = 0;
#endif
    goto again;
enough:
    skip
}

#ifdef CHECKS
/* What the result of a check tells the sleeping waiters of client c. */
inline spread(c) {
    for (w : 0 .. N - 1) {
        if
#ifdef BREAK_EPOCH
        :: CLIENT(w) == c && asleep[w] && claimed[w] ->
#else
        :: CLIENT(w) == c && asleep[w] && (claimed[w] || known[w] != found) ->
#endif
            told[w] = CHECKED
        :: else
        fi;
        claimed[w] = false
    };
    found = 0
}

/* With CHECKS=2 the result of a check may be old when it is read. */
proctype Hub(byte me) {
    byte found; /* the epoch */
    bool claimed[N];
endless:
    if
    :: d_step { up(me) && WAITS(me) ->
            check(me);
            for (w : 0 .. N - 1) {
                claimed[w] = (kind[w] == CLAIM && ROW(w) == me)
            };
            found = epoch[me];
#if CHECKS == 1
            spread(me)
#endif
        }
    fi;
#if CHECKS == 2
    if
    :: d_step { up(me) -> spread(me) }
    fi;
#endif
    goto endless
}
#endif

#ifdef TOKENS
/* The one for whom the token matters: its holder may have a lease again, but not the same. */
proctype Late(byte me) {
endless:
    if
    :: d_step { awake(me) && stale[me] != 0 -> release(me, stale[me]); stale[me] = 0 }
    :: d_step { awake(me) && stale[me] != 0 -> refresh(me, stale[me]); stale[me] = 0 }
    fi;
    goto endless
}
#endif

#if FAULTS > 0

/* Time runs out on those who do not run. */
#define TIME_OF_HOLDER(h) \
    :: d_step { !up(ROW(h)) && kind[h] != NONE && !over[h] -> \
            over[h] = true; \
            printf("time is over for %d\n", h) \
        } \
    :: d_step { kind[h] == CLAIM && !over[h] && faults > 0 -> \
            over[h] = true; \
            faults--; \
            printf("%d is too slow for its claim\n", h) \
        } \
    :: d_step { told[h] == NOTICE && faults > 0 -> \
            told[h] = 0; \
            faults--; \
            printf("the notice to %d is lost\n", h) \
        }

#define FATE_OF_CLIENT(c) \
    :: d_step { !up(c) && present[c] -> \
            present[c] = false; \
            printf("presence is over for client %d\n", c) \
        } \
    :: d_step { faults > 0 && !crashed[c] -> \
            unsure(c); \
            for (w : 0 .. N - 1) { \
                if \
                :: CLIENT(w) == c -> forget(w) \
                :: else \
                fi \
            }; \
            crashed[c] = true; \
            paused[c] = false; \
            faults--; \
            printf("client %d crashes\n", c) \
        } \
    :: d_step { faults > 0 && up(c) -> \
            unsure(c); \
            paused[c] = true; \
            faults--; \
            printf("client %d stops for a while\n", c) \
        } \
    :: d_step { paused[c] -> \
            paused[c] = false; \
            printf("client %d goes on\n", c) \
        }

inline unsure(c) {
    for (w : 0 .. N - 1) {
        sure[w] = sure[w] && CLIENT(w) != c
    }
}

/* A claim whose notice reached nobody, since its client has crashed. */
#define unheard(h) (kind[h] == CLAIM && crashed[ROW(h)])

proctype Env() {
endless:
    if
    :: d_step { unheard(0) || unheard(1) || unheard(N - 2) || unheard(N - 1) ->
            ahead = 0;
            do
            :: unheard(ahead) -> break
            :: else -> ahead++
            od;
            strike(ahead)
        }
    TIME_OF_HOLDER(0)
    TIME_OF_HOLDER(1)
#if N > 2
    TIME_OF_HOLDER(2)
#endif
#if N > 3
    TIME_OF_HOLDER(3)
#endif
    FATE_OF_CLIENT(0)
#if CLIENTS > 1
    FATE_OF_CLIENT(1)
#endif
#if CLIENTS > 2
    FATE_OF_CLIENT(2)
#endif
#if CLIENTS > 3
    FATE_OF_CLIENT(3)
#endif
    :: d_step { faults > 0 -> faults = 0 } /* they may happen, but need not */
    fi;
    goto endless
}
#endif

init {
    atomic {
        for (k : 0 .. N - 1) {
            run Waiter(k, CLIENT(k))
        };
#ifdef TAKE_OVER
        run Waiter(0, N);
#endif
#ifdef CHECKS
        for (k : 0 .. CLIENTS - 1) {
            run Hub(k)
        };
#endif
#ifdef TOKENS
        for (k : 0 .. N - 1) {
            run Late(k)
        };
#endif
#if FAULTS > 0
        run Env()
#endif
    }
}

/* No live waiter is forgotten: each is granted in the end, or gives up, or crashes. */
#ifdef LIVE
#if N == 2
ltl served { ([]<> !wants[0]) && ([]<> !wants[1]) }
#elif N == 3
ltl served { ([]<> !wants[0]) && ([]<> !wants[1]) && ([]<> !wants[2]) }
#else
ltl served { ([]<> !wants[0]) && ([]<> !wants[1]) && ([]<> !wants[2]) && ([]<> !wants[3]) }
#endif
#endif
