-- Grants the key, confirms a claim on it, re-enters it, queues the caller, or says who is in the way.
-- ARGV: holder, ttl, weight, limit, at_least, extend_only, worker, and to be queued also: client,
-- arrival, listening, skip_grace, join ("-": none), mark.

-- The common case first: the key is free, so nobody has it or waits for it. The numbers of the clock
-- stay the digits they come as, since each number made and written anew shows here.
local holder, join = ARGV[1], tonumber(ARGV[12])
do
  local row = redis.call('GET', KEYS[1])
  if not row or string.byte(row) == 70 then
    local time = redis.call('TIME')
    local us = string.format('%06d', time[2])
    local now, token, ok = time[1] .. string.sub(us, 1, 3), time[1] .. us, '0'
    if row then
      local last
      last, ok = string.match(row, '^F(%d+) (%d+)')
      if tonumber(last) >= tonumber(token) then token = string.format('%.0f', last + 1) end
    end
    if not join or join == 0 or tonumber(ok) < join then
      local expires, opens, kept = string.format('%.0f', now + ARGV[2]), '0', ARGV[2] + LINGER
      if ARGV[5] ~= '0' then
        opens = string.format('%.0f', now + ARGV[5])
        kept = math.max(kept, ARGV[5] + LINGER)
      end
      redis.call(
        'SET', KEYS[1],
        'L' .. token .. ' ' .. ok .. '\0' .. token .. ' ' .. now .. ' ' .. expires .. ' ' .. opens
          .. ' 0 ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' 0\0' .. holder .. '\0\0' .. ARGV[7],
        'PX', string.format('%.0f', kept)
      )
      return 'G' .. token .. ' ' .. now .. ' ' .. expires .. ' 0 0 '
    end
  end
end

--include rows

local ttl, weight, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at_least, extend_only, worker = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7]
local client, queueing = ARGV[8], ARGV[8] ~= nil

local function granted(lease, reentered, replaced)
  local waiting = someone_waits()
  -- Others are served after the caller has its own: what it has found lapsed may be theirs.
  if not replaced and lease.weight < lease.limit then serve() end
  close()
  return answer(format(
    'G%.0f %.0f %.0f %d %d ', lease.token, lease.acquired, lease.expires, reentered and 1 or 0,
    waiting and 1 or 0
  ) .. (replaced or ''))
end

local function opens_at()
  return at_least == 0 and 0 or now + at_least
end

local function grant(waiter)
  if waiter then dequeue(waiter) end
  local lease = {
    token = draw_token(), acquired = now, expires = now + ttl, opens = opens_at(), ended = 0,
    weight = weight, limit = limit, claim = false, holder = holder, client = '', worker = worker,
  }
  return granted(lease, false, settle_in(lease))
end

local function confirm(lease)
  local waiter = waiter_of(holder)
  if waiter then dequeue(waiter) end
  lease.claim, lease.client, lease.worker = false, '', worker
  lease.acquired, lease.expires, lease.opens = now, now + ttl, opens_at()
  put(lease)
  return granted(lease, false)
end

local function reenter(lease)
  lease.acquired = now
  lease.expires = extend_only and max(lease.expires, now + ttl) or now + ttl
  put(lease)
  return granted(lease, true)
end

local function new_waiter(run)
  local arrival = tonumber(ARGV[9])
  local joined = join
  if join == 0 then joined = run end
  return {
    holder = holder, arrival = arrival > 0 and arrival or next_arrival(), ttl = ttl,
    weight = weight, limit = limit, at_least = at_least, join = joined, queued = now, lost = 0,
    parked = 0, mark = ARGV[13], client = client, worker = worker,
  }
end

local function busy(first, why, run, arrival, epoch)
  close()
  return answer(format(
    'B%.0f %s %.0f %.0f %.0f ', first and ends(first) - now or 0, why, run, arrival, epoch
  ) .. (first and first.holder or ''))
end

local function refuse(waiter, epoch)
  local first, grace = nil, true
  for _, lease in ipairs(leases) do
    local at = ends(lease)
    if at > now then
      grace = grace and in_grace(lease)
      if not first or at < ends(first) or at == ends(first) and lease.token < first.token then
        first = lease
      end
    end
  end
  local why = grace and 'grace' or 'held'
  if fits(weight, limit, holder) then why = 'waiting' end
  local run = first and first.token or 0
  if queueing and ARGV[11] == '1' and why == 'grace' then
    if waiter then
      dequeue(waiter)
      serve(nil, nil, true)
    end
    queueing = false
  end
  if not queueing then return busy(first, why, run, 0, 0) end
  -- What a grace is left of has ended before: it is the next run that a joiner joins.
  local joins = run
  if first and in_grace(first) then joins = run + 1 end
  if not waiter then
    waiter = new_waiter(joins)
  elseif not join then
    waiter.join = nil
  end
  enqueue(waiter)
  if join == 0 then run = waiter.join and waiter.join > 0 and waiter.join or joins end
  return busy(first, why, run, waiter.arrival, epoch)
end

open(1)
lapse()
local mine = lease_of(holder)
if mine and running(mine) then
  if mine.claim then return confirm(mine) end
  return reenter(mine)
end
local waiter, epoch = waiter_of(holder), 0
if queueing then
  if join and join > 0 and ok_token >= join then
    if waiter then dequeue(waiter) end
    serve()
    close()
    return answer(format('J%.0f', ok_token))
  end
  epoch = report(client, tonumber(ARGV[10]))
  if waiter and (waiter.parked > 0 or waiter.client ~= client) then
    -- A holder's name may outlive its process: whoever asks last is the one to be told.
    waiter.client = client
    if waiter.parked > 0 and waiter.lost >= PARKED_LIMIT then
      waiter.lost, waiter.arrival = 0, next_arrival()
    end
    waiter.parked = 0
    enqueue(waiter)
  end
end
local head = serve(holder)
mine = lease_of(holder)
if mine and mine.claim then return confirm(mine) end
if not head and fits(weight, limit, holder) then return grant(waiter) end
return refuse(waiter, epoch)
