-- The lease file of joblock. All moments are milliseconds since 1970 on the store's clock (see meta).

-- One row for each key that was ever locked and not yet purged. It is the exclusive lease on the
-- key, or what remembers the key while nobody has it (holder is NULL), and it says whether there is
-- more to know in the other tables: permits and waiters count the key's rows there. So the
-- uncontended lock is one statement on this row alone.
CREATE TABLE job_locks (
    key         TEXT    NOT NULL PRIMARY KEY,
    holder      TEXT,
    token       INTEGER NOT NULL,            -- the last one granted for the key
    weight      INTEGER NOT NULL DEFAULT 1,
    "limit"     INTEGER NOT NULL DEFAULT 1,
    acquired_at INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER NOT NULL DEFAULT 0,
    opens_at    INTEGER NOT NULL DEFAULT 0,  -- stays closed at least until then
    ended_at    INTEGER NOT NULL DEFAULT 0,  -- not 0: the run is over, in grace until expires_at
    worker      TEXT    NOT NULL DEFAULT '',
    client      TEXT,                        -- not NULL: a claim, which this client may confirm
    ok_token    INTEGER NOT NULL DEFAULT 0,  -- the last run that ended well
    done        INTEGER NOT NULL DEFAULT 0,  -- the newest occurrence whose run ended well,
    done_until  INTEGER NOT NULL DEFAULT 0,  -- and until when that is remembered
    permits     INTEGER NOT NULL DEFAULT 0,
    waiters     INTEGER NOT NULL DEFAULT 0,
    arrivals    INTEGER NOT NULL DEFAULT 0,  -- the last arrival number given
    vacated_at  INTEGER NOT NULL DEFAULT 0,
    forced_at   INTEGER NOT NULL DEFAULT 0,  -- when it was last broken by force, by whom and why
    forced_by   TEXT    NOT NULL DEFAULT '',
    forced_why  TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Leases that take a part of their limit only.
CREATE TABLE permits (
    key         TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    token       INTEGER NOT NULL,
    weight      INTEGER NOT NULL,
    "limit"     INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    opens_at    INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    worker      TEXT    NOT NULL,
    client      TEXT,
    PRIMARY KEY (key, holder)
) WITHOUT ROWID;

CREATE TABLE waiters (
    key         TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    client      TEXT    NOT NULL,
    arrival     INTEGER NOT NULL,
    ttl         INTEGER NOT NULL,
    weight      INTEGER NOT NULL,
    "limit"     INTEGER NOT NULL,
    at_least    INTEGER NOT NULL,
    joined      INTEGER,                     -- the token of the run it joined
    queued_at   INTEGER NOT NULL,
    worker      TEXT    NOT NULL,
    lost        INTEGER NOT NULL,            -- claims it did not confirm
    parked_at   INTEGER NOT NULL,            -- not 0: out of the queue until it asks again
    PRIMARY KEY (key, holder)
) WITHOUT ROWID;

CREATE INDEX waiters_in_line ON waiters (key, arrival, holder) WHERE parked_at = 0;
CREATE INDEX waiters_by_client ON waiters (key, client) WHERE parked_at = 0;
CREATE INDEX waiters_joining ON waiters (key, joined) WHERE joined IS NOT NULL;

-- Clients that wait for something, one row each however many waiters they have.
CREATE TABLE presence (
    client        TEXT    NOT NULL PRIMARY KEY,
    epoch         INTEGER NOT NULL,
    present_until INTEGER NOT NULL,
    listening     INTEGER NOT NULL
) WITHOUT ROWID;

-- What the file as a whole knows. The store's clock is the machine's time since boot plus
-- clock_base, both in microseconds, for as long as the machine has the same boot_id.
CREATE TABLE meta (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    boot_id     TEXT    NOT NULL,
    clock_base  INTEGER NOT NULL,
    token_floor INTEGER NOT NULL,            -- no new key begins with a token up to this one
    epochs      INTEGER NOT NULL
)
