/* What the store does to one key, in one atomic step each: src/joblock/store/machine.py.
 *
 * here                 there (machine.py, and the Rows of a store)
 * lapse, serve         lapse, serve
 * acquire              acquire, with _grant, _confirm, _reenter, _refuse, _unpark
 * refresh, release     refresh, release (a release without grace)
 * leave, strike, check leave, strike, check
 * fits, settle         _fits, _settle_in
 * report               Rows.report; present[] and epoch[] are the presence of a client
 * line, parked, lost   Rows.queue and the parked waiters aside, in one line by arrival number
 *
 * Time is an event: over[h] says that the lease or claim of h has run out. Nothing in the store
 * notices that by itself; the next operation finds it, as there.
 *
 * A macro BREAK_... removes one rule, to see a property fail.
 */

#define NOBODY 255

#define NONE 0
mtype = { CLAIM, LEASE, GRANTED, BUSY, NOTICE, CHECKED };

#define TOO_OFTEN 2 /* PARKED_LIMIT */

/* The rows of the key. */
mtype kind[N]; /* what holder h has: NONE, CLAIM or LEASE */
bool over[N];  /* and whether its time is over */
byte line[N];  /* waiters, oldest first */
byte waiters;  /* how many */
bool parked[N];
byte lost[N];  /* claims that h did not confirm */

/* The presence of waiting clients. */
bool present[CLIENTS];
byte epoch[CLIENTS];

/* What reached the waiter h since it last asked: a NOTICE, which may still be lost on its way, or
 * the result of its client having CHECKED. */
mtype told[N];

#ifdef TOKENS
byte last_token;
byte token[N];
byte seen;       /* the highest token that an exclusive lease was granted with so far */
byte seen_share; /* the same for the others */
#endif

/* Scratch: means nothing between two operations, so it is no part of a state. (A search for the
 * shortest history does not support that.) */
#ifdef SHORTEST
#define hidden
#endif
hidden byte k;
hidden byte at;
hidden byte w;
hidden byte head;
hidden byte taken;
hidden byte closed;
hidden byte fit;
hidden byte did;
hidden byte yes;
hidden mtype answer;

#define exclusive(h) (WEIGHT(h) >= LIMIT(h))
#define runs(h)      (kind[h] != NONE && !over[h])

/* fit = may h have its lease beside the live leases of the others? */
inline fits(h) {
    taken = 0;
    closed = false;
    for (k : 0 .. N - 1) {
        if
        :: k != (h) && runs(k) ->
#ifdef BREAK_CLAIMS_COUNT
            if
            :: kind[k] == LEASE ->
                taken = taken + WEIGHT(k);
                closed = closed || exclusive(k)
            :: else
            fi
#else
            taken = taken + WEIGHT(k);
            closed = closed || exclusive(k)
#endif
        :: else
        fi
    }
    fit = (!closed && (exclusive(h) -> taken == 0 : taken + WEIGHT(h) <= LIMIT(h)))
}

inline in_line(h) {
    did = false;
    for (k : 0 .. N - 1) {
        did = did || (k < waiters && line[k] == (h))
    }
}

inline enqueue(h) {
    line[waiters] = h;
    waiters++
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
        parked[h] = false
    :: else
    fi
}

inline drop(h) {
    kind[h] = NONE;
    over[h] = false;
#ifdef TOKENS
    token[h] = 0
#endif
}

/* Put down what h is given; expired leases that no longer fit beside it are gone for good. */
inline settle(h, what) {
    no_barging(h);
    kind[h] = what;
    over[h] = false;
#ifdef TOKENS
    last_token++;
    token[h] = last_token;
#endif
    for (w : 0 .. N - 1) {
        if
        :: kind[w] != NONE && over[w] ->
            fits(w);
            if
            :: !fit -> drop(w)
            :: else
            fi
        :: else
        fi
    }
    admitted(h)
}

inline notify(h) {
    if
    :: told[h] == 0 && !crashed[ROW(h)] -> told[h] = NOTICE
    :: else
    fi
}

/* A client shows that it is there; its presence begins anew if it was over. */
inline report(c) {
    if
    :: !present[c] ->
        epoch[c]++;
        present[c] = true
    :: else
    fi
}

inline lapse() {
    for (w : 0 .. N - 1) {
        if
        :: kind[w] == CLAIM && over[w] ->
            printf("  the claim of %d has lapsed\n", w);
            drop(w);
#ifndef BREAK_STRIKE
            present[ROW(w)] = false;
#endif
            in_line(w);
            if
            :: did ->
                parked[w] = true;
                lost[w]++
            :: else
            fi
        :: else
        fi
    }
}

inline hand_to(h, asking, checking) {
    printf("  a claim for %d\n", h);
    settle(h, CLAIM);
    if
    :: h != asking && ROW(h) != checking -> notify(h)
    :: else
    fi
}

/* Claims for the oldest live waiters while they fit; head is the first that does not. */
inline serve(asking, checking) {
    head = NOBODY;
    for (at : 0 .. N - 1) {
        if
        :: head == NOBODY && at < waiters && !parked[line[at]] && !present[ROW(line[at])] ->
            printf("  %d is parked\n", line[at]);
            parked[line[at]] = true
        :: head == NOBODY && at < waiters && !parked[line[at]] && present[ROW(line[at])] ->
            fits(line[at]);
            if
            :: kind[line[at]] == CLAIM -> skip
            :: kind[line[at]] != CLAIM && fit -> hand_to(line[at], asking, checking)
#ifdef BREAK_HEAVY_WAITS
            :: else
#else
            :: else -> head = line[at]
#endif
            fi
        :: else
        fi
    }
}

inline confirm(h) {
    asked_by(h);
    kind[h] = LEASE;
    dequeue(h);
    lost[h] = 0;
    answer = GRANTED;
    granted(h)
}

/* A waiter that asks again after it was parked. */
inline unpark(h) {
    if
    :: parked[h] ->
#ifndef BREAK_UNPARK
        parked[h] = false;
#endif
        if
        :: lost[h] >= TOO_OFTEN ->
            dequeue(h);
            enqueue(h);
            lost[h] = 0
        :: else
        fi
    :: else
    fi
}

/* answer = GRANTED or BUSY; queued tells whether a refused h is put in line. */
inline acquire(h, queued) {
    printf("%d asks\n", h);
    lapse();
    yes = runs(h);
    if
    :: !yes && queued ->
        report(CLIENT(h));
#ifndef BREAK_TAKE_OVER
        asked_by(h);
#endif
        unpark(h)
    :: else
    fi;
#ifdef BREAK_SERVE_AFTER_LAPSE
    if
    :: !yes -> serve(h, NOBODY)
    :: else
    fi;
#else
    serve(h, NOBODY);
#endif
    fits(h);
    if
    :: kind[h] == CLAIM -> confirm(h)
    :: yes && kind[h] == LEASE ->
        asked_by(h);
        answer = GRANTED
#ifdef BREAK_BARGE
    :: !yes && kind[h] != CLAIM && fit ->
#else
    :: !yes && kind[h] != CLAIM && fit && head == NOBODY ->
#endif
        asked_by(h);
        dequeue(h);
        lost[h] = 0;
        settle(h, LEASE);
        answer = GRANTED;
        granted(h)
    :: else -> refuse(h, queued)
    fi;
    printf("  answer: %e\n", answer);
    settled()
}

inline refuse(h, queued) {
    answer = BUSY;
    in_line(h);
    if
    :: queued && !did ->
        asked_by(h);
        enqueue(h)
    :: else
    fi;
    if
    :: queued -> not_forgotten(h)
    :: else
    fi
}

#ifdef TOKENS
#ifdef BREAK_TOKEN
#define mine(h, t) (true)
#else
#define mine(h, t) (token[h] == (t))
#endif
#else
#define mine(h, t) (true)
#endif

/* t is the token; yes = was it renewed */
inline refresh(h, t) {
    printf("%d refreshes\n", h);
    fits(h);
#ifdef BREAK_REFRESH_FITS
    yes = (kind[h] == LEASE && mine(h, t));
#else
    yes = (kind[h] == LEASE && mine(h, t) && (!over[h] || fit));
#endif
    if
    :: yes ->
        touched(h, t);
        over[h] = false;
        admitted(h)
    :: else
    fi
}

/* yes = was it freed */
inline release(h, t) {
    printf("%d releases\n", h);
    lapse();
    yes = (kind[h] != NONE && mine(h, t));
    if
    :: yes ->
        touched(h, t);
        if
        :: kind[h] == CLAIM -> dequeue(h)
        :: else
        fi;
        drop(h)
    :: else
    fi;
#if defined(BREAK_SERVE_AFTER_LAPSE)
    if
    :: yes -> serve(NOBODY, NOBODY)
    :: else
    fi;
#elif !defined(BREAK_SERVE_AFTER_RELEASE)
    serve(NOBODY, NOBODY);
#endif
    settled()
}

inline leave(h) {
    printf("%d leaves\n", h);
    lapse();
    dequeue(h);
    lost[h] = 0;
    drop(h);
#ifndef BREAK_SERVE_AFTER_LEAVE
    serve(NOBODY, NOBODY);
#endif
    settled()
}

inline strike(h) {
    printf("%d is struck\n", h);
    if
    :: kind[h] == CLAIM -> over[h] = true
    :: else
    fi;
    lapse();
    serve(NOBODY, NOBODY);
    settled()
}

inline check(c) {
    printf("client %d checks\n", c);
#ifdef BREAK_LAPSE_FIRST
    report(c);
    lapse();
#else
    lapse();
    report(c);
#endif
    serve(NOBODY, c);
    settled();
    assert(present[c])
}
