-- What joblock does in PostgreSQL, with the meaning that joblock/store/machine.py gives it.
-- {schema} stands for the quoted schema. The number in the names is the format they work on.
--
-- Each call is one transaction at READ COMMITTED. A function's first statement locks the lease
-- row; what it reads after that, it reads in later statements, whose snapshots are newer than the
-- lock. (A statement that waits for a lock goes on with its older snapshot for all other rows.)
--
-- Lock order: lease rows in key order; rows of the other tables only under the lock of their
-- key's lease row. Purging skips whatever is locked, so it waits for nobody.
--
-- Lock strength: what ends a live lease locks its row FOR UPDATE, all else FOR NO KEY UPDATE. A
-- transaction that must not commit once the lease is gone takes it FOR KEY SHARE: that stops its
-- release and a takeover, but neither a renewal nor a contender, which finds it held.

-- The lease row of a key, locked; made if it is missing.
create or replace function {schema}.joblock_1_open(k text) returns {schema}.job_locks
language plpgsql volatile as $$
declare r {schema}.job_locks;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'joblock works at READ COMMITTED' using errcode = 'JB001';
    end if;
    loop
        select * into r from {schema}.job_locks j where j.key = k for no key update;
        if found then
            return r;
        end if;
        insert into {schema}.job_locks (key) values (k) on conflict do nothing;
        if found then
            -- Read after the row is ours: a purge of the same key has raised it by now.
            update {schema}.job_locks j set token = (select floor from {schema}.job_lock_meta)
            where j.key = k returning * into r;
            return r;
        end if;
    end loop;
end $$;

-- The lease row of a key, locked as it takes to end the lease of h; nothing if it is missing. Where
-- the lease is another's, a guard on that is not waited for.
create or replace function {schema}.joblock_1_open_to_end(k text, h text)
returns {schema}.job_locks language plpgsql volatile as $$
declare r {schema}.job_locks;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'joblock works at READ COMMITTED' using errcode = 'JB001';
    end if;
    select * into r from {schema}.job_locks j where j.key = k and j.holder = h for update;
    if not found then
        select * into r from {schema}.job_locks j where j.key = k for no key update;
        if r.holder = h then
            perform from {schema}.job_locks j where j.key = k for update;
        end if;
    end if;
    return r;
end $$;

-- Store the lease row, if it is not as it was.
create or replace function {schema}.joblock_1_save(r {schema}.job_locks, was {schema}.job_locks)
returns void language plpgsql volatile as $$
begin
    if r.waited then
        r.waited := exists (select from {schema}.job_lock_waiters w where w.key = r.key);
    end if;
    if r is distinct from was then
        update {schema}.job_locks j set
            holder = r.holder, token = r.token, weight = r.weight, acquired_at = r.acquired_at,
            expires_at = r.expires_at, opens_at = r.opens_at, ended_at = r.ended_at,
            worker = r.worker, claimant = r.claimant, ok_token = r.ok_token,
            arrivals = r.arrivals, waited = r.waited, shared = r.shared,
            broken_at = r.broken_at, broken_by = r.broken_by, broken_why = r.broken_why
        where j.key = r.key;
    end if;
end $$;

create or replace function {schema}.joblock_1_now() returns bigint
language sql volatile as $$
    select floor(date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

create or replace function {schema}.joblock_1_vacate(r {schema}.job_locks, t bigint)
returns {schema}.job_locks language plpgsql volatile as $$
begin
    r.holder := ''; r.claimant := ''; r.worker := '';
    r.opens_at := 0; r.ended_at := 0; r.expires_at := t;
    return r;
end $$;

-- A guard is on an expired lease (a transaction has it FOR KEY SHARE): it counts as live a while.
create or replace function {schema}.joblock_1_heed(r {schema}.job_locks, t bigint)
returns {schema}.job_locks language plpgsql volatile as $$
begin
    if r.holder <> '' and r.claimant = '' and r.ended_at = 0
       and greatest(r.expires_at, r.opens_at) <= t then
        perform from {schema}.job_locks j where j.key = r.key for update skip locked;
        if not found then
            r.expires_at := t + 50;
        end if;
    end if;
    return r;
end $$;

-- Find what is over: claims nobody confirmed, graces that have ended, and permits that lapsed ten
-- minutes ago, which nobody comes back for: a key that many share may never be vacant.
create or replace function {schema}.joblock_1_lapse(r {schema}.job_locks, t bigint)
returns {schema}.job_locks language plpgsql volatile as $$
declare p record;
begin
    if r.claimant <> '' and r.expires_at <= t then
        perform {schema}.joblock_1_strike(r.key, r.holder, r.claimant);
        r := {schema}.joblock_1_vacate(r, t);
    elsif r.ended_at <> 0 and greatest(r.expires_at, r.opens_at) <= t then
        r := {schema}.joblock_1_vacate(r, t);
    end if;
    if r.shared then
        for p in
            delete from {schema}.job_lock_permits q
            where q.key = r.key and (q.claimant <> '' and q.expires_at <= t
                or q.ended_at <> 0 and greatest(q.expires_at, q.opens_at) <= t
                or greatest(q.expires_at, q.opens_at) <= t - 600000)
            returning q.holder, q.claimant
        loop
            if p.claimant <> '' then
                perform {schema}.joblock_1_strike(r.key, p.holder, p.claimant);
            end if;
        end loop;
        r.shared := exists (select from {schema}.job_lock_permits q where q.key = r.key);
    end if;
    return r;
end $$;

-- A claim was not confirmed: park its waiter, and count its client as gone.
create or replace function {schema}.joblock_1_strike(k text, h text, c text) returns void
language plpgsql volatile as $$
begin
    update {schema}.job_lock_presence p set until = 0 where p.key = k and p.client = c;
    update {schema}.job_lock_waiters w set lost = w.lost + 1, parked = true
    where w.key = k and w.holder = h;
end $$;

-- Whether a lease of that weight and limit fits beside the live ones. There is no room beside one
-- of `own`, the holder itself; those of `besides` do not count.
create or replace function {schema}.joblock_1_fits(
    r {schema}.job_locks, wt integer, cap integer, t bigint, own text, besides text
) returns boolean language plpgsql volatile as $$
declare
    taken bigint;
    twice boolean;
begin
    if r.holder <> '' and r.holder <> besides and greatest(r.expires_at, r.opens_at) > t then
        return false;
    end if;
    if not r.shared then
        return true;
    end if;
    select coalesce(sum(p.weight), 0), coalesce(bool_or(p.holder = own), false)
    into taken, twice from {schema}.job_lock_permits p
    where p.key = r.key and p.holder <> besides and greatest(p.expires_at, p.opens_at) > t;
    return not twice and case when wt >= cap then taken = 0 else taken + wt <= cap end;
end $$;

-- Put a new lease down, under a new token (r.token); the expired ones that no longer fit beside
-- it are gone for good, and `replaced` names the newest of those.
create or replace function {schema}.joblock_1_settle(
    inout r {schema}.job_locks, t bigint, us bigint, h text, wt integer, cap integer,
    until bigint, opens bigint, who text, c text, out replaced text
) language plpgsql volatile as $$
declare taken bigint;
begin
    r.token := greatest(r.token + 1, us);
    replaced := '';
    if r.holder <> '' then
        replaced := case when r.holder = h then '' else r.holder end;
        r := {schema}.joblock_1_vacate(r, t);
    end if;
    if wt >= cap then
        if r.shared then
            with gone as (
                delete from {schema}.job_lock_permits p where p.key = r.key
                returning p.holder, p.token
            )
            select coalesce((select g.holder from gone g where g.holder <> h
                             order by g.token desc limit 1), replaced) into replaced;
            r.shared := false;
        end if;
        r.holder := h; r.weight := wt; r.acquired_at := t; r.expires_at := until;
        r.opens_at := opens; r.ended_at := 0; r.worker := who; r.claimant := c;
        return;
    end if;
    if r.shared then
        select coalesce(sum(p.weight), 0) into taken from {schema}.job_lock_permits p
        where p.key = r.key and greatest(p.expires_at, p.opens_at) > t;
        with gone as (
            delete from {schema}.job_lock_permits p
            where p.key = r.key and greatest(p.expires_at, p.opens_at) <= t
                and (p.holder = h or taken + wt + p.weight > p.capacity)
            returning p.holder, p.token
        )
        select coalesce((select g.holder from gone g where g.holder <> h
                         order by g.token desc limit 1), replaced) into replaced;
    end if;
    insert into {schema}.job_lock_permits
        (key, token, holder, weight, capacity, acquired_at, expires_at, opens_at, worker, claimant)
    values (r.key, r.token, h, wt, cap, t, until, opens, who, c);
    r.shared := true;
end $$;

-- Claim the key for the oldest live waiters while they fit; `head`: one that does not is left.
-- `asking` and `checking` are the holder and the client that learn of a claim from the reply.
-- Whoever has become the next in line (`moved`: somebody left the queue) is told when the claims
-- before it lapse.
create or replace function {schema}.joblock_1_serve(
    inout r {schema}.job_locks, t bigint, us bigint, asking text, checking text, moved boolean,
    out head boolean
) language plpgsql volatile as $$
declare
    w record;
    s record;
    claimed_until bigint;
    soonest bigint;
begin
    head := false;
    if not r.waited then
        return;
    end if;
    for w in
        select * from {schema}.job_lock_waiters q
        where q.key = r.key and not q.parked order by q.arrival, q.holder
    loop
        if not exists (select from {schema}.job_lock_presence p
                       where p.key = r.key and p.client = w.client and p.until > t) then
            update {schema}.job_lock_waiters q set parked = true
            where q.key = r.key and q.holder = w.holder;
            moved := true;
            continue;
        end if;
        claimed_until := case when r.holder = w.holder and r.claimant <> '' then r.expires_at end;
        if r.shared and claimed_until is null then
            select case when p.claimant <> '' then p.expires_at end into claimed_until
            from {schema}.job_lock_permits p
            where p.key = r.key and p.holder = w.holder order by p.token limit 1;
        end if;
        if claimed_until is not null then
            soonest := least(soonest, claimed_until);
            continue;
        end if;
        if not {schema}.joblock_1_fits(r, w.weight, w.capacity, t, w.holder, '') then
            if moved and soonest is not null then
                perform {schema}.joblock_1_tell(
                    w.client, w.mark, w.holder, (soonest - t)::integer);
            end if;
            head := true;
            return;
        end if;
        select * into s from {schema}.joblock_1_settle(
            r, t, us, w.holder, w.weight, w.capacity, t + least(1000, w.ttl), 0, w.worker,
            w.client);
        r := s.r;
        soonest := least(soonest, t + least(1000, w.ttl));
        moved := true;
        if w.holder <> asking and w.client <> checking then
            perform {schema}.joblock_1_tell(w.client, w.mark, w.holder, 0);
        end if;
    end loop;
end $$;

-- Notify a client, on its own channel. The key itself is never sent. For one that is notified by
-- others the notice is laid aside until the end of the transaction, for joblock_1_told.
create or replace function {schema}.joblock_1_tell(c text, mark text, h text, after integer)
returns void language plpgsql volatile as $$
begin
    if left(c, 1) = '!' then
        perform set_config('joblock.told',
            coalesce(current_setting('joblock.told', true), '') || ','
            || json_build_array(c, mark, h, after), true);
    else
        perform pg_notify('joblock:' || c, after || ' ' || mark || ' ' || h);
    end if;
end $$;

create or replace function {schema}.joblock_1_tell_everyone(k text) returns void
language plpgsql volatile as $$
begin
    perform {schema}.joblock_1_tell(w.client, w.mark, '', 0)
    from (select distinct q.client, q.mark from {schema}.job_lock_waiters q
          where q.key = k and not q.parked) w;
end $$;

-- The run `ok` ended well: its joiners are done, parked or just handed a permit as they may be.
create or replace function {schema}.joblock_1_dismiss(k text, ok bigint) returns void
language plpgsql volatile as $$
declare d record;
begin
    for d in
        with done as (
            delete from {schema}.job_lock_waiters q
            where q.key = k and q.joins > 0 and q.joins <= ok
            returning q.holder, q.client, q.mark
        ), handed as (
            delete from {schema}.job_lock_permits p
            where p.key = k and p.claimant <> '' and p.holder in (select g.holder from done g)
        )
        select distinct g.client, g.mark from done g
    loop
        perform {schema}.joblock_1_tell(d.client, d.mark, '', 0);
    end loop;
end $$;

-- Count a client as present; the epoch of its presence. Not in SQL, whose plan is made anew at each
-- call: that takes six times as long as the statement.
create or replace function {schema}.joblock_1_report(k text, c text, t bigint, us bigint)
returns bigint language plpgsql volatile as $$
declare of_presence bigint;
begin
    insert into {schema}.job_lock_presence as p (key, client, until, epoch)
    values (k, c, t + 15000, us)
    on conflict (key, client) do update set
        until = excluded.until,
        epoch = case when p.until > t then p.epoch
                     else greatest(p.epoch + 1, excluded.epoch) end
    returning p.epoch into of_presence;
    return of_presence;
end $$;

create or replace function {schema}.joblock_1_waits(r {schema}.job_locks) returns boolean
language plpgsql volatile as $$
begin
    return r.waited and exists (
        select from {schema}.job_lock_waiters w where w.key = r.key and not w.parked);
end $$;

-- acquire: 'G token acquired_at expires_at reentered waiting replaced',
-- 'B remaining why token arrival epoch holder', or 'J ok_token'.
-- c = '' is never queued; joining = -1 joins nothing.
create or replace function {schema}.joblock_1_acquire(
    k text, h text, ttl bigint, wt integer, cap integer, least_ms bigint, extend boolean,
    who text, c text, old_arrival bigint, skip_grace boolean, joining bigint, mark text
) returns text language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    p {schema}.job_lock_permits;
    w {schema}.job_lock_waiters;
    us bigint; t bigint;
    opens bigint;
    epoch bigint := 0;
    run bigint;
    head boolean;
    again boolean;
    s record;
    b record;
begin
    if c = '' and current_setting('transaction_read_only') = 'off' then
        -- Held by another, and nobody waits: that needs no lock, nor does it wait for one. (A
        -- standby's word is not taken for it: what it knows may be old.)
        select * into r from {schema}.job_locks j where j.key = k and not j.waited;
        t := {schema}.joblock_1_now() / 1000;
        if r.holder <> '' and r.holder <> h and greatest(r.expires_at, r.opens_at) > t then
            return 'B ' || greatest(r.expires_at, r.opens_at) - t
                || case when r.ended_at = 0 and r.expires_at > t then ' held ' else ' grace ' end
                || r.token || ' 0 0 ' || r.holder;
        end if;
    end if;
    r := {schema}.joblock_1_open(k);
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    opens := case when least_ms > 0 then t + least_ms else 0 end;
    r := {schema}.joblock_1_heed({schema}.joblock_1_lapse(r, t), t);
    if r.waited then
        select * into w from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
    end if;

    for round in 1..2 loop
        -- Mine already: a claim is confirmed, a lease re-entered.
        if r.holder = h and r.ended_at = 0 and r.expires_at > t then
            r.acquired_at := t;
            if r.claimant <> '' then
                r.claimant := ''; r.expires_at := t + ttl; r.opens_at := opens; r.worker := who;
                delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
                again := false;
            else
                r.expires_at := case when extend then greatest(r.expires_at, t + ttl)
                                     else t + ttl end;
                again := true;
            end if;
            perform {schema}.joblock_1_save(r, was);
            return 'G ' || r.token || ' ' || t || ' ' || r.expires_at || ' ' || again::integer
                || ' ' || {schema}.joblock_1_waits(r)::integer || ' ';
        elsif r.shared then
            select * into p from {schema}.job_lock_permits q
            where q.key = k and q.holder = h order by q.token limit 1;
            if found and p.ended_at = 0 and p.expires_at > t then
                p.expires_at := case when extend and p.claimant = ''
                                     then greatest(p.expires_at, t + ttl) else t + ttl end;
                if p.claimant <> '' then
                    delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
                end if;
                update {schema}.job_lock_permits q set
                    acquired_at = t, expires_at = p.expires_at, claimant = '',
                    opens_at = case when p.claimant <> '' then opens else p.opens_at end,
                    worker = case when p.claimant <> '' then who else p.worker end
                where q.key = k and q.token = p.token;
                -- After that, not before: the caller keeps its own, others get what has lapsed.
                select * into s from {schema}.joblock_1_serve(r, t, us, '', '', false);
                r := s.r;
                perform {schema}.joblock_1_save(r, was);
                return 'G ' || p.token || ' ' || t || ' ' || p.expires_at || ' '
                    || (p.claimant = '')::integer || ' '
                    || {schema}.joblock_1_waits(r)::integer || ' ';
            end if;
        end if;
        exit when round = 2;

        if c <> '' then
            if joining > 0 and r.ok_token >= joining then
                delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
                select * into s from {schema}.joblock_1_serve(r, t, us, '', '', false);
                r := s.r;
                perform {schema}.joblock_1_save(r, was);
                return 'J ' || r.ok_token;
            end if;
            epoch := {schema}.joblock_1_report(k, c, t, us);
            if w.parked and w.lost >= 2 then
                w.lost := 0;
                r.arrivals := r.arrivals + 1;
                w.arrival := r.arrivals;
            end if;
            -- A holder's name may outlive its process: whoever asks last is the one to be told.
            if w.parked or w.client <> c then
                update {schema}.job_lock_waiters q set
                    parked = false, lost = w.lost, arrival = w.arrival, client = c
                where q.key = k and q.holder = h;
            end if;
        end if;
        select * into s from {schema}.joblock_1_serve(r, t, us, h, '', false);
        r := s.r;
        head := s.head;
        -- Served: it is confirmed in the second round.
        exit when not (r.holder = h and r.claimant <> '') and not r.shared;
    end loop;

    if not head and {schema}.joblock_1_fits(r, wt, cap, t, h, '') then
        select * into s from {schema}.joblock_1_settle(
            r, t, us, h, wt, cap, t + ttl, opens, who, '');
        r := s.r;
        if w.holder is not null then
            delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
        end if;
        perform {schema}.joblock_1_save(r, was);
        return 'G ' || r.token || ' ' || t || ' ' || t + ttl || ' 0 '
            || {schema}.joblock_1_waits(r)::integer || ' ' || s.replaced;
    end if;

    -- Refused: what lapses first is what is said to be in the way.
    if r.holder <> '' and greatest(r.expires_at, r.opens_at) > t then
        select r.holder as holder, r.token as token,
            greatest(r.expires_at, r.opens_at) - t as remaining,
            case when r.ended_at = 0 and r.expires_at > t then 'held' else 'grace' end as why,
            not (r.ended_at = 0 and r.expires_at > t) as over
        into b;
    else
        select q.holder, q.token, greatest(q.expires_at, q.opens_at) - t as remaining,
            case when bool_and(not (q.ended_at = 0 and q.expires_at > t)) over ()
                then 'grace' else 'held' end as why,
            not (q.ended_at = 0 and q.expires_at > t) as over
        into b
        from {schema}.job_lock_permits q
        where q.key = k and greatest(q.expires_at, q.opens_at) > t
        order by 3, q.token limit 1;
        if not found then
            select '' as holder, 0::bigint as token, 0::bigint as remaining, 'waiting' as why,
                false as over
            into b;
        end if;
    end if;
    if {schema}.joblock_1_fits(r, wt, cap, t, h, '') then
        b.why := 'waiting';
    end if;
    if c <> '' and skip_grace and b.why = 'grace' then
        delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
        select * into s from {schema}.joblock_1_serve(r, t, us, '', '', true);
        r := s.r;
        c := '';
    end if;
    if c = '' then
        perform {schema}.joblock_1_save(r, was);
        return 'B ' || b.remaining || ' ' || b.why || ' ' || b.token || ' 0 0 ' || b.holder;
    end if;
    -- What a grace is left of has ended before: it is the next run that a joiner joins.
    run := b.token + b.over::integer;
    -- A crash may forget that it was queued: presence is gone after one, so all are queued anew;
    -- unless somebody has made that table a logged one.
    if (select x.relpersistence = 'u' from {schema}.job_lock_presence q
        join pg_class x on x.oid = q.tableoid where q.key = k and q.client = c) then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if w.holder is null then
        w.joins := case when joining = 0 then run else joining end;
        w.arrival := case when old_arrival > 0 then old_arrival else r.arrivals + 1 end;
        r.arrivals := greatest(r.arrivals, w.arrival);
        insert into {schema}.job_lock_waiters
            (key, holder, client, mark, arrival, ttl, weight, capacity, joins, queued_at, worker)
        values (k, h, c, mark, w.arrival, ttl, wt, cap, w.joins, t, who);
        r.waited := true;
    elsif joining = -1 and w.joins <> -1 then
        w.joins := -1;
        update {schema}.job_lock_waiters q set joins = -1 where q.key = k and q.holder = h;
    end if;
    perform {schema}.joblock_1_save(r, was);
    return 'B ' || b.remaining || ' ' || b.why || ' '
        || case when joining <> 0 then b.token when w.joins > 0 then w.joins else run end
        || ' ' || w.arrival || ' ' || epoch || ' ' || b.holder;
end $$;

-- As acquire, unless the occurrence is done: then the caller is queued no more, and has no claim.
create or replace function {schema}.joblock_1_acquire_once(
    k text, h text, ttl bigint, wt integer, cap integer, least_ms bigint, extend boolean,
    who text, c text, old_arrival bigint, skip_grace boolean, joining bigint, mark text,
    occurrence bigint
) returns text language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    p {schema}.job_lock_permits;
    us bigint; t bigint;
    queued boolean;
    s record;
begin
    -- Locked before it is read, and until the lease is granted.
    r := {schema}.joblock_1_open(k);
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    if occurrence <= r.done and t < r.done_until then
        r := {schema}.joblock_1_heed({schema}.joblock_1_lapse(r, t), t);
        if r.holder = h then
            p.holder := h; p.token := r.token; p.claimant := r.claimant;
            p.ended_at := r.ended_at; p.expires_at := r.expires_at;
        elsif r.shared then
            select * into p from {schema}.job_lock_permits q
            where q.key = k and q.holder = h order by q.token limit 1;
        end if;
        if p.claimant <> '' or (p.holder is null or p.ended_at <> 0 or p.expires_at <= t)
           and not (c <> '' and joining > 0 and r.ok_token >= joining) then
            delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
            queued := found;
            if p.claimant <> '' and r.holder = h then
                r := {schema}.joblock_1_vacate(r, t);
            elsif p.claimant <> '' then
                r := {schema}.joblock_1_drop(r, t, p.token);
            end if;
            select * into s from {schema}.joblock_1_serve(r, t, us, '', '', queued);
            r := s.r;
            perform {schema}.joblock_1_save(r, was);
            return 'B 0 done 0 0 0 ';
        end if;
        perform {schema}.joblock_1_save(r, was);
    end if;
    return {schema}.joblock_1_acquire(k, h, ttl, wt, cap, least_ms, extend, who, c, old_arrival,
        skip_grace, joining, mark);
end $$;

-- release: '1' freed, '0' not the holder's. What it commits may be lost in a crash: the key then
-- lapses at its ttl, and whoever confirms a claim commits synchronously. But a grace keeps the key
-- closed for longer than its ttl, so it is not to be lost.
create or replace function {schema}.joblock_1_release(
    k text, h text, tok bigint, grace bigint, ok boolean
) returns text language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    p {schema}.job_lock_permits;
    us bigint; t bigint; closed bigint;
    mine boolean;
    queued boolean := false;
    s record;
begin
    if grace = 0 then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    r := {schema}.joblock_1_open_to_end(k, h);
    if r.key is null then
        return '0';
    end if;
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    r := {schema}.joblock_1_lapse(r, t);
    mine := r.holder = h;
    if mine then
        p.token := r.token; p.expires_at := r.expires_at; p.opens_at := r.opens_at;
        p.ended_at := r.ended_at; p.claimant := r.claimant;
    elsif r.shared then
        select * into p from {schema}.job_lock_permits q
        where q.key = k and q.holder = h order by q.token limit 1;
    end if;
    if p.token is null or p.ended_at <> 0 or tok <> 0 and tok <> p.token
       or p.expires_at <= t and t < p.opens_at then
        -- Not the holder's (any more), but it may be what finds that a lease has lapsed.
        r := {schema}.joblock_1_heed(r, t);
        select * into s from {schema}.joblock_1_serve(r, t, us, '', '', false);
        r := s.r;
        perform {schema}.joblock_1_save(r, was);
        return '0';
    end if;
    if ok then
        r.ok_token := greatest(r.ok_token, p.token);
        if r.waited then
            perform {schema}.joblock_1_dismiss(k, r.ok_token);
        end if;
    end if;
    closed := greatest(case when grace > 0 then t + grace else 0 end, p.opens_at);
    if p.claimant <> '' then
        -- A claim is left, with its place in the queue; none is left to a joiner that is done.
        delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
        queued := found;
        closed := 0;
    end if;
    if closed > t then
        if mine then
            r.ended_at := t; r.expires_at := closed; r.opens_at := 0;
        else
            update {schema}.job_lock_permits q
            set ended_at = t, expires_at = closed, opens_at = 0
            where q.key = k and q.token = p.token;
        end if;
        if r.waited then
            perform {schema}.joblock_1_tell_everyone(k);
        end if;
    elsif mine then
        r := {schema}.joblock_1_vacate(r, t);
    else
        r := {schema}.joblock_1_drop(r, t, p.token);
    end if;
    select * into s from {schema}.joblock_1_serve(r, t, us, '', '', queued);
    r := s.r;
    perform {schema}.joblock_1_save(r, was);
    return (p.claimant = '' or queued)::integer::text;
end $$;

-- As release; and remembers the occurrence that ended well, if no later one did.
create or replace function {schema}.joblock_1_release_once(
    k text, h text, tok bigint, grace bigint, ok boolean, occurrence bigint, kept bigint
) returns text language plpgsql volatile set search_path = pg_catalog as $$
declare
    durable text := current_setting('synchronous_commit');
    freed text := {schema}.joblock_1_release(k, h, tok, grace, ok);
    t bigint := {schema}.joblock_1_now() / 1000;
begin
    if freed = '1' then
        -- A release that is lost costs only time; this would be run again.
        perform set_config('synchronous_commit', durable, true);
        update {schema}.job_locks j set done = occurrence, done_until = t + kept
        where j.key = k and (occurrence >= j.done or j.done_until <= t);
    end if;
    return freed;
end $$;

-- Forget a permit; the row counts as vacated from the last one on.
create or replace function {schema}.joblock_1_drop(r {schema}.job_locks, t bigint, tok bigint)
returns {schema}.job_locks language plpgsql volatile as $$
begin
    delete from {schema}.job_lock_permits q where q.key = r.key and q.token = tok;
    r.shared := exists (select from {schema}.job_lock_permits q where q.key = r.key);
    if not r.shared and r.holder = '' then
        r.expires_at := t;
    end if;
    return r;
end $$;

create or replace function {schema}.joblock_1_leave(k text, h text) returns text
language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    p {schema}.job_lock_permits;
    us bigint; t bigint;
    left_it boolean; queued boolean;
    s record;
begin
    perform set_config('synchronous_commit', 'off', true);
    r := {schema}.joblock_1_open_to_end(k, h);
    if r.key is null then
        return '0';
    end if;
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    r := {schema}.joblock_1_heed({schema}.joblock_1_lapse(r, t), t);
    delete from {schema}.job_lock_waiters q where q.key = k and q.holder = h;
    queued := found;
    left_it := queued;
    if r.holder = h and r.ended_at = 0 then
        left_it := true;
        r := {schema}.joblock_1_vacate(r, t);
    elsif r.shared then
        select * into p from {schema}.job_lock_permits q
        where q.key = k and q.holder = h order by q.token limit 1;
        if found and p.ended_at = 0 then
            left_it := true;
            r := {schema}.joblock_1_drop(r, t, p.token);
        end if;
    end if;
    select * into s from {schema}.joblock_1_serve(r, t, us, '', '', queued);
    r := s.r;
    perform {schema}.joblock_1_save(r, was);
    return left_it::integer::text;
end $$;

create or replace function {schema}.joblock_1_pass_over(k text, h text) returns text
language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    p {schema}.job_lock_permits;
    us bigint; t bigint;
    struck boolean := false;
    s record;
begin
    perform set_config('synchronous_commit', 'off', true);
    r := {schema}.joblock_1_open(k);
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    if r.holder = h then
        struck := r.claimant <> '';
        if struck then
            r.expires_at := t;
        end if;
    elsif r.shared then
        select * into p from {schema}.job_lock_permits q
        where q.key = k and q.holder = h order by q.token limit 1;
        struck := found and p.claimant <> '';
        if struck then
            update {schema}.job_lock_permits q set expires_at = t
            where q.key = k and q.token = p.token;
        end if;
    end if;
    r := {schema}.joblock_1_heed({schema}.joblock_1_lapse(r, t), t);
    select * into s from {schema}.joblock_1_serve(r, t, us, '', '', false);
    r := s.r;
    perform {schema}.joblock_1_save(r, was);
    return struck::integer::text;
end $$;

-- check: a JSON list of [key, epoch, lapses_in, claimed, ok_token, grace], in key order.
create or replace function {schema}.joblock_1_check(c text, keys text[]) returns text
language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    k text;
    us bigint; t bigint; epoch bigint; lapses bigint;
    claimed json;
    grace boolean;
    states json[];
    s record;
begin
    perform set_config('synchronous_commit', 'off', true);
    for k in select distinct u collate "C" from unnest(keys) u order by 1 loop
        r := {schema}.joblock_1_open(k);
        was := r;
        us := {schema}.joblock_1_now();
        t := us / 1000;
        -- In this order: a claim of its own that lapses here is told by a new epoch.
        r := {schema}.joblock_1_heed({schema}.joblock_1_lapse(r, t), t);
        epoch := {schema}.joblock_1_report(k, c, t, us);
        select * into s from {schema}.joblock_1_serve(r, t, us, '', c, false);
        r := s.r;
        perform {schema}.joblock_1_save(r, was);
        lapses := greatest(r.expires_at, r.opens_at) - t;
        grace := r.ended_at <> 0 or r.expires_at <= t;
        claimed := case when r.claimant = c then json_build_array(r.holder) else '[]' end;
        if r.holder = '' or lapses <= 0 then
            lapses := 0; grace := false;
        end if;
        if r.shared then
            select coalesce(min(greatest(q.expires_at, q.opens_at)) - t, 0),
                coalesce(bool_or(q.ended_at <> 0 or q.expires_at <= t), false)
            into lapses, grace
            from {schema}.job_lock_permits q
            where q.key = k and greatest(q.expires_at, q.opens_at) > t;
            select coalesce(json_agg(q.holder order by q.token), '[]') into claimed
            from {schema}.job_lock_permits q where q.key = k and q.claimant = c;
        end if;
        states := states || json_build_array(k, epoch, lapses, claimed, r.ok_token, grace);
    end loop;
    return coalesce(to_json(states)::text, '[]');
end $$;

-- refresh: for each renewal two characters: renewed ('1', '0', or 'L': its row was locked and
-- `patient` is off), and 'w' if somebody waits.
create or replace function {schema}.joblock_1_refresh(
    keys text[], holders text[], tokens bigint[], ttls bigint[], extend boolean, patient boolean
) returns text language plpgsql volatile set search_path = pg_catalog as $$
declare
    t bigint;
    locked text[];
    reply text;
    u record;
    r {schema}.job_locks;
    p {schema}.job_lock_permits;
    yes boolean;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'joblock works at READ COMMITTED' using errcode = 'JB001';
    end if;
    if patient then
        perform from {schema}.job_locks j where j.key = any (keys)
        order by j.key for no key update;
    else
        select array_agg(s.key) into locked from (
            select j.key from {schema}.job_locks j where j.key = any (keys)
            order by j.key for no key update skip locked) s;
    end if;
    t := {schema}.joblock_1_now() / 1000;

    -- All exclusive leases at once. Nothing else fits beside one, so its row says it all.
    -- Those locked are a subquery, which is hashed: from the sixth call on the plan is one for any
    -- array, and `= any` would search through all of it for each key.
    with renewal as (
        select * from unnest(keys, holders, tokens, ttls)
            with ordinality as n (key, holder, token, ttl, place)
    ), renewed as (
        update {schema}.job_locks j set expires_at = case
            when extend then greatest(j.expires_at, t + n.ttl) else t + n.ttl end
        from renewal n
        where j.key = n.key and j.holder = n.holder and j.claimant = '' and j.ended_at = 0
            and (n.token = 0 or j.token = n.token)
            and (j.expires_at > t or j.opens_at <= t)
            and (patient or j.key in (select l from unnest(locked) l))
        returning n.place, j.waited and {schema}.joblock_1_waits(j) as waits
    )
    select coalesce(string_agg(
        case when d.place is null then '0 ' when d.waits then '1w' else '1 ' end,
        '' order by n.place), '')
    into reply from renewal n left join renewed d using (place);

    -- The rest one by one: permits, several holders of one lease, what is not the holder's.
    if position('0' in reply) > 0 then
        for u in
            select n.*, n.key in (select l from unnest(locked) l) as ours
            from unnest(keys, holders, tokens, ttls)
                with ordinality as n (key, holder, token, ttl, place)
            where substr(reply, 2 * n.place::integer - 1, 1) = '0'
        loop
            select * into r from {schema}.job_locks j where j.key = u.key;
            if not found then
                continue;
            elsif not (patient or u.ours) then
                reply := overlay(reply placing 'L' from 2 * u.place::integer - 1);
                continue;
            end if;
            yes := r.holder = u.holder and r.claimant = '' and r.ended_at = 0
                and (u.token = 0 or r.token = u.token)
                and (r.expires_at > t or r.opens_at <= t);
            if yes then
                update {schema}.job_locks j set expires_at = case
                    when extend then greatest(j.expires_at, t + u.ttl) else t + u.ttl end
                where j.key = u.key;
            elsif r.shared then
                select * into p from {schema}.job_lock_permits q
                where q.key = u.key and q.holder = u.holder order by q.token limit 1;
                yes := found and p.claimant = '' and p.ended_at = 0
                    and (u.token = 0 or p.token = u.token)
                    and (p.expires_at > t or p.opens_at <= t
                        and {schema}.joblock_1_fits(r, p.weight, p.capacity, t, '', u.holder));
                if yes then
                    update {schema}.job_lock_permits q set expires_at = case
                        when extend then greatest(q.expires_at, t + u.ttl) else t + u.ttl end
                    where q.key = u.key and q.token = p.token;
                end if;
            end if;
            reply := overlay(reply placing
                yes::integer || case when {schema}.joblock_1_waits(r) then 'w' else ' ' end
                from 2 * u.place::integer - 1);
        end loop;
    end if;
    return reply;
end $$;

-- force: a JSON list of the leases that were broken, in the shape of the readers' lists.
create or replace function {schema}.joblock_1_force(k text, who text, why text) returns text
language plpgsql volatile set search_path = pg_catalog as $$
declare
    r {schema}.job_locks;
    was {schema}.job_locks;
    us bigint; t bigint;
    broken text;
    s record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'joblock works at READ COMMITTED' using errcode = 'JB001';
    end if;
    select * into r from {schema}.job_locks j where j.key = k for update;
    if not found then
        return '[]';
    end if;
    was := r;
    us := {schema}.joblock_1_now();
    t := us / 1000;
    r := {schema}.joblock_1_lapse(r, t);
    perform {schema}.joblock_1_save(r, was);
    was := r;
    select coalesce(json_agg(json_build_array(
            l.key, l.holder, l.token, l.weight, l.capacity, l.acquired_at, l.expires_at,
            l.opens_at, l.ended_at, l.worker, t) order by l.token), '[]')
    into broken from {schema}.job_lock_leases l where l.key = k;
    delete from {schema}.job_lock_permits q where q.key = k;
    r := {schema}.joblock_1_vacate(r, t);
    r.shared := false;
    if broken <> '[]' then
        r.broken_at := t; r.broken_by := who; r.broken_why := why;
    end if;
    select * into s from {schema}.joblock_1_serve(r, t, us, '', '', false);
    r := s.r;
    perform {schema}.joblock_1_save(r, was);
    return broken;
end $$;

-- Whether nobody has had, or waited for, that key since then.
create or replace function {schema}.joblock_1_idle(r {schema}.job_locks, since bigint)
returns boolean language plpgsql volatile as $$
begin
    return greatest(r.expires_at, r.opens_at, r.done_until) <= since
        and not exists (
            select from {schema}.job_lock_permits p
            where p.key = r.key and greatest(p.expires_at, p.opens_at) > since)
        and not exists (
            select from {schema}.job_lock_waiters w where w.key = r.key and not w.parked);
end $$;

-- Whether a waiter is out of the line, was queued before that, and its client was not seen since.
create or replace function {schema}.joblock_1_gone(w {schema}.job_lock_waiters, since bigint)
returns boolean language sql stable as $$
    select w.parked and w.queued_at <= since and not exists (
        select from {schema}.job_lock_presence p
        where p.key = w.key and p.client = w.client and p.until > since);
$$;

-- purge: how many keys that were idle that long were deleted. It goes through the keys in turn,
-- a bounded number of them in each call, and passes over whatever is locked.
create or replace function {schema}.joblock_1_purge(batch integer, idle bigint) returns text
language plpgsql volatile set search_path = pg_catalog as $$
declare
    t bigint := {schema}.joblock_1_now() / 1000;
    after text;
    seen text[];
    stale text[];
    crowded text[];
    deleted integer := 0;
    highest bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'joblock works at READ COMMITTED' using errcode = 'JB001';
    end if;
    select m.purged into after from {schema}.job_lock_meta m for update skip locked;
    if not found then
        return '0';
    end if;
    for round in 1..2 loop
        select array_agg(s.key order by s.key) into seen from (
            select j.key from {schema}.job_locks j where j.key > after
            order by j.key limit 20 * batch) s;
        select array_agg(s.key order by s.key), max(s.token) into stale, highest from (
            select j.key, j.token from {schema}.job_locks j
            where j.key = any (seen) and {schema}.joblock_1_idle(j, t - idle)
            order by j.key limit batch - deleted for update skip locked) s;
        -- A row may have been locked after its waiters and permits were read: they are read again
        -- now that it is ours.
        select array_agg(j.key order by j.key) into stale from {schema}.job_locks j
        where j.key = any (stale) and {schema}.joblock_1_idle(j, t - idle);
        if stale is not null then
            delete from {schema}.job_lock_permits p where p.key = any (stale);
            delete from {schema}.job_lock_waiters w where w.key = any (stale);
            delete from {schema}.job_locks j where j.key = any (stale);
            deleted := deleted + array_length(stale, 1);
            update {schema}.job_lock_meta m set floor = greatest(m.floor, highest);
        end if;
        -- A key that is never vacant is never idle: only here are those forgotten who once waited
        -- for it. Not without its row, or one of them might just be asking again.
        select array_agg(s.key) into crowded from (
            select j.key from {schema}.job_locks j
            where j.key = any (seen) and exists (
                select from {schema}.job_lock_waiters w
                where w.key = j.key and {schema}.joblock_1_gone(w, t - idle))
            order by j.key for update skip locked) s;
        delete from {schema}.job_lock_waiters w
        where w.key = any (crowded) and {schema}.joblock_1_gone(w, t - idle);
        if deleted >= batch then
            after := stale[array_length(stale, 1)];
            exit;
        elsif array_length(seen, 1) = 20 * batch then
            after := seen[array_length(seen, 1)];
            exit;
        end if;
        exit when after = '';
        after := '';
    end loop;
    update {schema}.job_lock_meta m set purged = after where m.purged <> after;
    delete from {schema}.job_lock_presence p where (p.key, p.client) in (
        select q.key, q.client from {schema}.job_lock_presence q where q.until + idle <= t
        limit 1000 for update skip locked);
    return deleted::text;
end $$;

-- The reply of one of the functions above, and the notices that it laid aside, as a JSON list.
create or replace function {schema}.joblock_1_told(reply text) returns text
language plpgsql volatile set search_path = pg_catalog as $$
begin
    return '[' || to_json(reply) || coalesce(current_setting('joblock.told', true), '') || ']';
end $$;
