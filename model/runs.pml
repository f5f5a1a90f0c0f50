/* Jobs on one key: joined runs, grace, and occurrences that are run once.
 *
 * here                    there (src/joblock/store/machine.py)
 * lapse, serve            lapse, serve, for a key of limit 1
 * acquire                 acquire, with _confirm, _grant, _refuse, _refuse_done
 * release                 release, with _dismiss_joiners, _remember; a grace if the run ended well
 * leave                   leave
 * Job                     the flow of a call: acquire_or_join and _Wait in protocol/acquire.py, then
 *                         the release of protocol/job.py
 *
 * A waiter and the holder it becomes have one number, h. How waiters are told, and found dead, is the
 * matter of clients.pml: here one that is told asks again, and with FAULTS one asks again at any time.
 * Parameters (see check.sh): N jobs that are called ROUNDS times each; JOIN, they join the run in
 * progress; OCCURRENCES, each call is for tick 1 or 2; GRACE; GIVE_UPS; FAULTS, how many at most.
 * A macro BREAK_... removes one rule, to see a property fail.
 */

#define NOBODY 255

mtype = { NONE, CLAIM, LEASE, GRACED, GRANTED, JOINED, DONE, BUSY };

#ifndef GIVE_UPS
#define GIVE_UPS 0
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
byte give_ups = GIVE_UPS;
byte faults = FAULTS;

/* What the store keeps of the key. */
mtype kind = NONE; /* what there is of a lease */
byte holder = NOBODY;
bool over;       /* and whether its time is over */
byte token;      /* of the last lease */
byte ok_token;   /* of the last run that ended well */
byte done;       /* the last tick that was done */
byte line[N];    /* waiters, oldest first */
byte waiters;
bool parked[N];  /* those that did not confirm a claim, until they ask again */
byte joins[N];   /* the run that h joins */

/* What a job knows. */
bool told[N];
byte tick[N];    /* what its call is for; 0: for no tick */
byte joined[N];  /* the run that it was told to join */
byte before[N];  /* which run had ended well when its call began */
mtype reply[N];
byte mine[N];    /* the token of its lease */
bool crashed[N];
bool ended[N];   /* all its calls */

/* Scratch, as in store.pml. */
#ifdef SHORTEST
#define hidden
#endif
hidden byte k;
hidden byte head;
hidden byte did;
hidden byte gone;

#ifdef JOIN
#define JOINS true
#else
#define JOINS false
#endif

inline in_line(h) {
    did = false;
    for (k : 0 .. N - 1) {
        did = did || (k < waiters && line[k] == (h))
    }
}

inline dequeue(h) {
    did = false;
    for (k : 0 .. N - 1) {
        if
        :: k < waiters && line[k] == (h) -> did = true
        :: else
        fi;
        if
        :: did && k + 1 < waiters -> line[k] = line[k + 1]
        :: else
        fi
    }
    if
    :: did ->
        waiters--;
        line[waiters] = 0;
        parked[h] = false;
        joins[h] = 0
    :: else
    fi
}

inline drop() {
    kind = NONE;
    holder = NOBODY;
    over = false
}

/* A claim that nobody confirmed, and a grace that has ended. */
inline lapse() {
    if
    :: kind == CLAIM && over -> parked[holder] = true; drop()
    :: kind == GRACED && over -> drop()
    :: else
    fi
}

#define free (kind == NONE || over)

/* A claim for the oldest waiter, if the key is free. */
inline serve() {
    head = NOBODY;
    for (k : 0 .. N - 1) {
        if
        :: head == NOBODY && k < waiters && !parked[line[k]] -> head = line[k]
        :: else
        fi
    }
    if
    :: head != NOBODY && free ->
        printf("  a claim for %d\n", head);
        kind = CLAIM;
        holder = head;
        over = false;
        token++;
        told[head] = true
    :: else
    fi
}

/* ---- The properties (and in release: no tick is done twice) ---- */

/* h may run: its tick was not done, and the run that it joined did not end well. */
inline may_run(h) {
    assert(tick[h] == 0 || tick[h] > done);
    assert(joined[h] == 0 || ok_token < joined[h]);
    mine[h] = token
}

/* h joined a run: one that ended well after its call had begun. */
inline has_joined(h) {
    assert(ok_token > before[h])
}

/* Nobody waits for a free key, or for a run that has ended well. */
inline settled() {
    for (k : 0 .. N - 1) {
        assert(k >= waiters || parked[line[k]] || !free);
        assert(k >= waiters || joins[line[k]] == 0 || joins[line[k]] > ok_token)
    };
    skip /* for a d_step must not end with a loop */
}

/* ---- The operations ---- */

inline grant(h) {
    dequeue(h);
    kind = LEASE;
    holder = h;
    over = false;
    reply[h] = GRANTED;
    may_run(h)
}

/* queued: whether it waits if refused; which: the run that it says it joins, 0 at first. */
inline acquire(h, queued, which) {
    printf("%d asks, for tick %d, joins %d\n", h, tick[h], which);
    told[h] = false;
    lapse();
#ifdef BREAK_DONE
    gone = false;
#else
    gone = tick[h] != 0 && tick[h] <= done;
#endif
    if
#ifdef BREAK_DONE_AT_CONFIRM
    :: holder == h && kind == CLAIM && !over -> grant(h)
#else
    :: holder == h && kind == CLAIM && !over && !gone -> grant(h)
#endif
    :: holder == h && kind == LEASE && !over -> reply[h] = GRANTED
    :: !(holder == h && !over && kind != GRACED) && which != 0 && ok_token >= which ->
        dequeue(h);
        serve();
        reply[h] = JOINED;
        has_joined(h)
    :: else ->
        if
        :: gone ->
            if
            :: holder == h && kind == CLAIM -> drop()
            :: else
            fi;
            dequeue(h);
#ifndef BREAK_SERVE_AFTER_DONE
            serve();
#endif
            reply[h] = DONE
        :: else ->
            if
            :: queued -> parked[h] = false
            :: else
            fi;
            serve();
            if
            :: holder == h && kind == CLAIM && !over -> grant(h)
            :: !(holder == h && kind == CLAIM) && head == NOBODY && free -> token++; grant(h)
            :: else -> refuse(h, queued, which)
            fi
        fi
    fi;
    printf("  answer: %e\n", reply[h]);
    settled()
}

inline refuse(h, queued, which) {
    reply[h] = BUSY;
    in_line(h);
    if
    :: queued && !did ->
        line[waiters] = h;
        waiters++;
#ifdef BREAK_JOIN_IN_GRACE
        joins[h] = (!JOINS -> 0 : (which != 0 -> which : token))
#else
        /* What has left a grace has ended before: it is the next run that is joined. */
        joins[h] = (!JOINS -> 0 : (which != 0 -> which : token + (kind == GRACED)))
#endif
    :: else
    fi;
    if
    :: queued && which == 0 -> joined[h] = joins[h]
    :: else
    fi
}

inline dismiss_joiners() {
    for (head : 0 .. N - 1) {
        if
#ifdef BREAK_PARKED_JOINERS
        :: joins[head] != 0 && joins[head] <= ok_token && !parked[head] ->
#else
        :: joins[head] != 0 && joins[head] <= ok_token ->
#endif
            dequeue(head);
            told[head] = true
        :: else
        fi
    }
}

inline release(h, ok, grace) {
    printf("%d releases, well: %d, with a grace: %d\n", h, ok, grace);
    lapse();
    if
    :: holder == h && kind == LEASE && token == mine[h] ->
        if
        :: ok ->
            assert(tick[h] == 0 || tick[h] > done);
            ok_token = token;
            dismiss_joiners();
            done = (tick[h] > done -> tick[h] : done)
        :: else
        fi;
        if
        :: ok && grace -> kind = GRACED; over = false
        :: else -> drop()
        fi
    :: else
    fi;
    serve();
    settled()
}

inline leave(h) {
    printf("%d leaves\n", h);
    lapse();
    dequeue(h);
    if
    :: holder == h && kind != GRACED -> drop()
    :: else
    fi;
    serve();
    settled()
}

/* ---- The processes ---- */

inline forget(h) {
    tick[h] = 0;
    joined[h] = 0;
    before[h] = 0;
    reply[h] = 0;
    mine[h] = 0;
    told[h] = false
}

#define here (!crashed[me])

proctype Job(byte me) {
    byte rounds;
    do
    :: d_step { here && rounds < ROUNDS -> rounds++; before[me] = (JOINS -> ok_token : 0) };
#ifdef OCCURRENCES
        if
        :: tick[me] = 1
        :: tick[me] = 2
        fi;
#endif
        do
        :: d_step { here && (reply[me] != BUSY || told[me] || FAULTS > 0) ->
                acquire(me, true, joined[me])
            };
            if
            :: d_step { here && reply[me] == GRANTED };
                if
                :: d_step { here -> release(me, true, false) }
                :: d_step { here -> release(me, false, false) }
#ifdef GRACE
                :: d_step { here -> release(me, true, true) }
#endif
                fi;
                break
            :: d_step { here && (reply[me] == JOINED || reply[me] == DONE) };
                break
            :: d_step { here && reply[me] == BUSY }
            :: d_step { here && faults > 0 -> faults--; reply[me] = 0 } /* the reply is lost */
            fi
#if GIVE_UPS > 0
        :: d_step { here && reply[me] == BUSY && give_ups > 0 ->
                /* The last chance. */
                give_ups--;
#ifdef BREAK_LAST_CHANCE
                acquire(me, false, 0)
#else
                acquire(me, true, joined[me])
#endif
            };
            if
            :: d_step { here && reply[me] == GRANTED -> release(me, true, false) }
            :: d_step { here && reply[me] == BUSY -> leave(me) }
            :: d_step { here && (reply[me] == JOINED || reply[me] == DONE) }
            fi;
            break
#endif
        od;
        if
        :: d_step { here -> forget(me) }
        fi
    :: d_step { here && rounds == ROUNDS -> ended[me] = true };
        break
    od
}

#define CRASH(h) \
    :: d_step { faults > 0 && !crashed[h] -> \
            faults--; \
            crashed[h] = true; \
            printf("%d crashes\n", h) \
        }

/* Time: a grace ends, and what its holder does not look after runs out. */
proctype Env() {
end:
    do
    :: d_step { kind == GRACED -> over = true; lapse(); serve(); settled() }
#if FAULTS > 0
    :: d_step { holder != NOBODY && crashed[holder] && kind != GRACED && !over ->
            over = true;
            printf("time is over for %d, which crashed\n", holder);
            lapse();
            serve()
        }
    :: d_step { faults > 0 && kind != NONE && kind != GRACED && !over ->
            faults--;
            over = true;
            printf("%d is too slow\n", holder);
            lapse();
            serve()
        }
    CRASH(0)
    CRASH(1)
    CRASH(N - 1)
    :: d_step { faults > 0 -> faults = 0 } /* they may happen, but need not */
#endif
    od
}

init {
    atomic {
        for (k : 0 .. N - 1) {
            run Job(k)
        };
        run Env()
    }
}

/* Every call ends: it has run, or joined, or its tick is done, or it has given up. */
#ifdef LIVE
#define over_with(h) (ended[h] || crashed[h])
#if N == 2
ltl ends { <> (over_with(0) && over_with(1)) }
#else
ltl ends { <> (over_with(0) && over_with(1) && over_with(2)) }
#endif
#endif
