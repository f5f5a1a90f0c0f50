-- One key's rows, and on them the functions of joblock/store/machine.py under the same names.
--
-- The row is one string. Its first letter says how the key stands, NUL separates its parts:
--   F token ok              free: no more than what the next token must be above
--   L token ok, lease       one lease, and nobody waits
--   C token ok              crowded: all that is known is in the keys beside the row
-- A lease: "token acquired expires opens ended weight limit claim", holder, client, worker.
-- Beside a crowded row there are leases (hash), the queue (sorted set: arrival, or minus the moment
-- it was parked), waiters (hash), joiners (sorted set: the run joined), and who is present (hash).
-- Present: "epoch till listening"; it listens not (0), at the one server (1), in a cluster (2).
-- They live exactly as long as the row is crowded; keys without such a row are stale.

local call, format, match, floor, max = redis.call, string.format, string.match, math.floor, math.max

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = floor(now_us / 1000)

local ROW, LEASES, QUEUE, WAITERS, JOINERS, PRESENT
local token, ok_token, audit, leases, gone, seen, crowded, changed
local elsewhere = {}

local function read_lease(text)
  local token, acquired, expires, opens, ended, weight, limit, claim, holder, client, worker =
    match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)%z([^%z]*)%z([^%z]*)%z(.*)$')
  return {
    token = tonumber(token), acquired = tonumber(acquired), expires = tonumber(expires),
    opens = tonumber(opens), ended = tonumber(ended), weight = tonumber(weight),
    limit = tonumber(limit), claim = claim == '1', holder = holder, client = client,
    worker = worker,
  }
end

local function write_lease(lease)
  return format(
    '%.0f %.0f %.0f %.0f %.0f %.0f %.0f %d', lease.token, lease.acquired, lease.expires,
    lease.opens, lease.ended, lease.weight, lease.limit, lease.claim and 1 or 0
  ) .. '\0' .. lease.holder .. '\0' .. lease.client .. '\0' .. lease.worker
end

local function open(first)
  ROW, LEASES, QUEUE = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  WAITERS, JOINERS, PRESENT = KEYS[first + 3], KEYS[first + 4], KEYS[first + 5]
  token, ok_token, audit, leases, gone, seen = 0, 0, '', {}, {}, {}
  crowded, changed = false, false
  local row = call('GET', ROW)
  if not row then return end
  local kind, last, ok, rest = match(row, '^(%a)(%d+) (%d+)%z(.*)$')
  token, ok_token = tonumber(last), tonumber(ok)
  if kind == 'L' then
    leases[1] = read_lease(rest)
    return
  end
  audit = rest
  if kind == 'C' then
    crowded = true
    local flat = call('HGETALL', LEASES)
    for i = 1, #flat, 2 do
      leases[i / 2 + 0.5] = read_lease(flat[i + 1])
    end
  end
end

local function crowd()
  if crowded then return end
  crowded = true
  call('DEL', LEASES, QUEUE, WAITERS, JOINERS, PRESENT)
  for _, lease in ipairs(leases) do lease.dirty = true end
end

local function put(lease)
  lease.dirty, changed = true, true
end

local function drop(lease)
  changed = true
  gone[#gone + 1] = lease.holder
  for i, other in ipairs(leases) do
    if other == lease then
      leases[i] = leases[#leases]
      leases[#leases] = nil
      return
    end
  end
end

local function lease_of(holder)
  for _, lease in ipairs(leases) do
    if lease.holder == holder then return lease end
  end
end

local function ends(lease)
  return max(lease.expires, lease.opens)
end

local function running(lease)
  return lease.ended == 0 and lease.expires > now
end

local function in_grace(lease)
  return not running(lease) and ends(lease) > now
end

-- Whether there is room beside the live leases; a holder has none beside one of its own.
local function fits(weight, limit, holder, except)
  local taken = 0
  for _, lease in ipairs(leases) do
    if lease ~= except and ends(lease) > now then
      if lease.weight >= lease.limit or lease.holder == holder then return false end
      taken = taken + lease.weight
    end
  end
  if weight >= limit then return taken == 0 end
  return taken + weight <= limit
end

local function draw_token()
  token = max(token + 1, now_us)
  return token
end

local function waiter_of(holder)
  local text = crowded and call('HGET', WAITERS, holder)
  if not text then return nil end
  local arrival, ttl, weight, limit, at_least, join, queued, lost, parked, mark, client, worker =
    match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+)%z([^%z]*)%z([^%z]*)%z(.*)$')
  return {
    holder = holder, arrival = tonumber(arrival), ttl = tonumber(ttl), weight = tonumber(weight),
    limit = tonumber(limit), at_least = tonumber(at_least), join = tonumber(join),
    queued = tonumber(queued), lost = tonumber(lost), parked = tonumber(parked), mark = mark,
    client = client, worker = worker, joiner = join ~= '-',
  }
end

local function enqueue(waiter)
  crowd()
  changed = true
  local holder, parked = waiter.holder, waiter.parked
  call('HSET', WAITERS, holder, format(
    '%.0f %.0f %.0f %.0f %.0f %s %.0f %d %.0f', waiter.arrival, waiter.ttl, waiter.weight,
    waiter.limit, waiter.at_least, waiter.join and format('%.0f', waiter.join) or '-',
    waiter.queued, waiter.lost, parked
  ) .. '\0' .. waiter.mark .. '\0' .. waiter.client .. '\0' .. waiter.worker)
  call('ZADD', QUEUE, format('%.0f', parked == 0 and waiter.arrival or -parked), holder)
  if waiter.join and waiter.join > 0 then
    call('ZADD', JOINERS, format('%.0f', waiter.join), holder)
  elseif waiter.joiner then
    call('ZREM', JOINERS, holder)
  end
end

local function park(waiter)
  waiter.parked = now
  enqueue(waiter)
end

local function dequeue(waiter)
  changed = true
  call('HDEL', WAITERS, waiter.holder)
  call('ZREM', QUEUE, waiter.holder)
  if waiter.joiner then call('ZREM', JOINERS, waiter.holder) end
end

local function next_arrival()
  local tail = crowded and call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')[2]
  return max(tail and tonumber(tail) + 1 or 0, now_us)
end

local function someone_waits()
  return crowded and call('ZCOUNT', QUEUE, 0, '+inf') > 0
end

local function presence(client)
  local known = seen[client]
  if known == nil then
    local text = crowded and call('HGET', PRESENT, client)
    known = false
    if text then
      local epoch, till, listening = match(text, '^(%d+) (%d+) (%d)$')
      known = {epoch = tonumber(epoch), till = tonumber(till), listening = tonumber(listening)}
    end
    seen[client] = known
  end
  return known and known.till > now and known
end

local function report(client, listening)
  local known = presence(client)
  if not known then
    known = {epoch = now_us, fresh = true}
    seen[client] = known
  end
  known.till, known.listening, known.dirty = now + PRESENCE, listening, true
  changed = changed or crowded
  return known.epoch
end

local function strike(client)
  seen[client] = false
  changed = true
  if crowded then call('HDEL', PRESENT, client) end
end

-- Tells a client; false if the message reached nobody. In a cluster PUBLISH goes through all nodes,
-- so it is for who does not listen at this one; see joblock/stores/redis/shards.py.
-- For one that others notify, the notice goes back with the reply; who listens there is not known.
local function notify(client, mark, holder, after)
  if string.sub(client, 1, #ELSEWHERE) == ELSEWHERE then
    for _, part in ipairs({client, mark, holder, after}) do elsewhere[#elsewhere + 1] = part end
    return true
  end
  local text, here = after .. ' ' .. mark .. ' ' .. holder, presence(client)
  if here and here.listening == 2 then
    local reached = redis.pcall('SPUBLISH', CHANNEL .. string.sub(ROW, TAG_AT) .. client, text)
    if type(reached) == 'number' and reached > 0 then return true end
  end
  return call('PUBLISH', CHANNEL .. client, text) > 0
end

local function tell_once(told, client, mark)
  if not told[client] then
    told[client] = true
    notify(client, mark, '', 0)
  end
end

local function tell_everyone()
  if not crowded then return end
  local told = {}
  for _, text in ipairs(call('HVALS', WAITERS)) do
    local parked, mark, client = match(text, '^[^%z]* (%d+)%z([^%z]*)%z([^%z]*)%z')
    if parked == '0' then tell_once(told, client, mark) end
  end
end

local function dismiss_joiners()
  if not crowded then return end
  local told = {}
  for _, holder in ipairs(call('ZRANGEBYSCORE', JOINERS, 1, format('%.0f', ok_token))) do
    local waiter, lease = waiter_of(holder), lease_of(holder)
    if waiter then tell_once(told, waiter.client, waiter.mark) end
    dequeue({holder = holder, joiner = true})
    if lease and lease.claim then drop(lease) end
  end
end

-- Puts a new lease down; the expired ones that no longer fit beside it are gone for good.
local function settle_in(lease)
  leases[#leases + 1] = lease
  put(lease)
  local over, replaced, newest = {}, '', 0
  for _, other in ipairs(leases) do
    if other ~= lease and ends(other) <= now
      and (other.holder == lease.holder or not fits(other.weight, other.limit)) then
      over[#over + 1] = other
    end
  end
  for _, other in ipairs(over) do
    drop(other)
    if other.holder ~= lease.holder and other.token > newest then
      replaced, newest = other.holder, other.token
    end
  end
  return replaced
end

local function claim(waiter)
  local till = now + math.min(CLAIM, waiter.ttl)
  settle_in({
    token = draw_token(), acquired = now, expires = till, opens = 0,
    ended = 0, weight = waiter.weight, limit = waiter.limit, claim = true, holder = waiter.holder,
    client = waiter.client, worker = waiter.worker,
  })
  return till
end

local function lose_claim(waiter)
  waiter.lost = waiter.lost + 1
  park(waiter)
end

local function lapse()
  local over = {}
  for _, lease in ipairs(leases) do
    -- Nobody comes back for a permit that lapsed so long ago, and its key may never be vacant.
    if lease.claim and lease.expires <= now or lease.ended ~= 0 and ends(lease) <= now
      or ends(lease) + LINGER <= now and lease.weight < lease.limit then
      over[#over + 1] = lease
    end
  end
  for _, lease in ipairs(over) do
    drop(lease)
    if lease.claim then
      strike(lease.client)
      local waiter = waiter_of(lease.holder)
      if waiter then lose_claim(waiter) end
    end
  end
end

-- Hands the key to the oldest live waiters while they fit; the first that does not fit. If it has
-- become the next in line (moved: somebody left the queue), it is told when the claims before it
-- lapse.
local function serve(asking, checking, moved)
  local at, soonest = 0, nil
  while crowded do
    local holder = call('ZRANGEBYSCORE', QUEUE, 0, '+inf', 'LIMIT', at, 1)[1]
    if not holder then return nil end
    local waiter = waiter_of(holder)
    local here = waiter and presence(waiter.client)
    local mine = lease_of(holder)
    if not waiter then
      call('ZREM', QUEUE, holder)
    elseif not here then
      park(waiter)
      moved = true
    elseif mine and mine.claim then
      soonest = math.min(soonest or mine.expires, mine.expires)
      at = at + 1
    elseif not fits(waiter.weight, waiter.limit, holder) then
      if moved and soonest then notify(waiter.client, waiter.mark, holder, soonest - now) end
      return waiter
    elseif holder ~= asking and waiter.client ~= checking
      and not notify(waiter.client, waiter.mark, holder, 0) and here.listening == 1 then
      -- It listens, and (a cluster cannot tell) the message reached nobody: its process is dead.
      strike(waiter.client)
      lose_claim(waiter)
      moved = true
    else
      local ends_at = claim(waiter)
      soonest = math.min(soonest or ends_at, ends_at)
      moved = true
      at = at + 1
    end
  end
end

-- Takes a holder out of the queue and of any lease or claim; whether there was anything.
local function leave(holder)
  local waiter, lease = waiter_of(holder), lease_of(holder)
  local held = lease ~= nil and lease.ended == 0
  if waiter then dequeue(waiter) end
  if held then drop(lease) end
  serve(nil, nil, waiter ~= nil)
  return waiter ~= nil or held
end

-- Clients that were here once, each perhaps for a single run, must not add up for ever.
local function forget_absent()
  if call('HLEN', PRESENT) % 64 ~= 63 then return end
  local flat = call('HGETALL', PRESENT)
  for i = 1, #flat, 2 do
    if tonumber(match(flat[i + 1], '^%d+ (%d+)')) <= now then call('HDEL', PRESENT, flat[i]) end
  end
end

local function forget_parked()
  local oldest = format('%.0f', LINGER - now)
  for _, holder in ipairs(call('ZRANGEBYSCORE', QUEUE, oldest, '(0', 'LIMIT', 0, 100)) do
    dequeue({holder = holder, joiner = true})
  end
end

local function close_crowded(last)
  crowd()
  for _, holder in ipairs(gone) do call('HDEL', LEASES, holder) end
  for _, lease in ipairs(leases) do
    if lease.dirty then call('HSET', LEASES, lease.holder, write_lease(lease)) end
  end
  for client, known in pairs(seen) do
    if known and known.dirty then
      if known.fresh then forget_absent() end
      call('HSET', PRESENT, client,
        format('%.0f %.0f %d', known.epoch, known.till, known.listening))
    end
  end
  call('SET', ROW, format('C%.0f %.0f', token, ok_token) .. '\0' .. audit, 'PX', last)
  for _, name in ipairs({LEASES, QUEUE, WAITERS, JOINERS, PRESENT}) do
    call('PEXPIRE', name, last)
  end
end

-- Writes back what was changed, in the smallest form that holds it.
local function close()
  if not changed then return end
  if crowded then forget_parked() end
  local last = 0
  for _, lease in ipairs(leases) do last = max(last, ends(lease) - now) end
  last = format('%.0f', last + LINGER)
  local only = leases[1]
  if #leases > 1 or only and only.claim or crowded and call('HLEN', WAITERS) > 0 then
    return close_crowded(last)
  end
  if crowded then call('DEL', LEASES, QUEUE, WAITERS, JOINERS, PRESENT) end
  local head = format('%.0f %.0f', token, ok_token) .. '\0'
  if only then
    call('SET', ROW, 'L' .. head .. write_lease(only), 'PX', last)
  else
    -- Who broke a lease, and why, is kept for as long as what lapsed is.
    local floor_ms = max(0, floor(token / 1000) - now) + (audit == '' and FLOOR or LINGER)
    call('SET', ROW, 'F' .. head .. audit, 'PX', format('%.0f', floor_ms))
  end
end

-- What the script replies: with it what others are to tell, if that is anything.
local function answer(reply)
  if not elsewhere[1] then return reply end
  return {ELSEWHERE, reply, elsewhere}
end
