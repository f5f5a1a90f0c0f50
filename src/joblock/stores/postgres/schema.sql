-- The tables of joblock in PostgreSQL 12 and later. {schema} stands for the quoted schema.
--
-- All moments are milliseconds since 1970 in UTC (read them with to_timestamp(x / 1000.0)).
-- Names compare byte by byte (collation "C"), whatever the database's own collation is.

-- One row per key. It is the row that every operation on the key locks, and it holds the key's
-- exclusive lease, if there is one; holder = '' says that there is none. A vacated row is kept:
-- the next grant is then an update in place (no column that a cycle changes is indexed, and the
-- pages have room), and its token goes on growing.
create table if not exists {schema}.job_locks (
    key         text collate "C" primary key,
    holder      text collate "C" not null default '',
    token       bigint  not null default 0,      -- the last one drawn for the key
    weight      integer not null default 1,      -- of an exclusive lease, which is its limit too
    acquired_at bigint  not null default 0,
    expires_at  bigint  not null default 0,      -- if vacated: since when
    opens_at    bigint  not null default 0,      -- kept closed at least until then
    ended_at    bigint  not null default 0,      -- in grace since then; 0: not ended
    worker      text    not null default '',
    claimant    text collate "C" not null default '',  -- a claim: the client that may confirm it
    ok_token    bigint  not null default 0,      -- the newest run that ended well
    done        bigint  not null default 0,      -- the newest occurrence whose run ended well,
    done_until  bigint  not null default 0,      -- and until when that is remembered
    arrivals    bigint  not null default 0,      -- the last arrival number drawn
    waited      boolean not null default false,  -- there are waiters, parked ones included
    shared      boolean not null default false,  -- there are permits
    broken_at   bigint,
    broken_by   text,
    broken_why  text
) with (fillfactor = 50);

-- Leases and claims that take part of their limit. There are none beside an exclusive lease.
create table if not exists {schema}.job_lock_permits (
    key         text collate "C" not null,
    token       bigint  not null,
    holder      text collate "C" not null,
    weight      integer not null,
    capacity    integer not null,
    acquired_at bigint  not null,
    expires_at  bigint  not null,
    opens_at    bigint  not null,
    ended_at    bigint  not null default 0,
    worker      text    not null,
    claimant    text collate "C" not null default '',
    primary key (key, token)
) with (fillfactor = 70);

-- Queued requests. A parked one is out of the queue until its client asks again.
create table if not exists {schema}.job_lock_waiters (
    key         text collate "C" not null,
    holder      text collate "C" not null,
    client      text collate "C" not null,       -- where it is notified
    mark        text    not null,                -- what stands for the key in a notice
    arrival     bigint  not null,
    ttl         bigint  not null,
    weight      integer not null,
    capacity    integer not null,
    joins       bigint  not null,                -- the run it joins; -1: none
    queued_at   bigint  not null,
    worker      text    not null,
    lost        integer not null default 0,      -- claims it did not confirm
    parked      boolean not null default false,
    primary key (key, holder)
);

create index if not exists job_lock_waiters_queue
    on {schema}.job_lock_waiters (key, arrival, holder) where not parked;

-- Which clients that wait for a key are alive. It belongs to the key, so the key's lock covers it.
-- Unlogged: a crash or a failover empties it. Then each client is told a new epoch and has whoever
-- waits queued again, so that nobody is forgotten whose queueing was lost.
create unlogged table if not exists {schema}.job_lock_presence (
    key         text collate "C" not null,
    client      text collate "C" not null,
    until       bigint  not null,
    epoch       bigint  not null,                -- new whenever presence begins anew
    primary key (key, client)
) with (fillfactor = 70);

-- Every lease and claim, for readers.
create or replace view {schema}.job_lock_leases as
    select key, holder, token, weight, weight as capacity, acquired_at, expires_at, opens_at,
        ended_at, worker, claimant
    from {schema}.job_locks where holder <> ''
    union all
    select key, holder, token, weight, capacity, acquired_at, expires_at, opens_at,
        ended_at, worker, claimant
    from {schema}.job_lock_permits;

-- One row: the format of all this, the floor of tokens for new rows, and how far purging has got.
create table if not exists {schema}.job_lock_meta (
    one         boolean primary key default true check (one),
    format      integer not null,
    floor       bigint  not null default 0,
    purged      text collate "C" not null default ''
);

insert into {schema}.job_lock_meta (format) values (1) on conflict do nothing;
