-- Ends a lease, at once or after its grace, and passes the key on.
-- ARGV: holder, token (0: any), grace, ok.

-- The common case first: mine, nobody waits, and nothing keeps the key closed.
do
  local row = redis.call('GET', KEYS[1])
  if not row then return 0 end
  local token, ok, mine, holder = string.match(
    row, '^L(%d+) (%d+)%z(%d+) %d+ %d+ 0 0 %d+ %d+ 0%z([^%z]*)%z'
  )
  if holder == ARGV[1] and ARGV[3] == '0' and (ARGV[2] == '0' or ARGV[2] == mine) then
    if ARGV[4] == '1' and tonumber(mine) > tonumber(ok) then ok = mine end
    local time = redis.call('TIME')
    local ahead = token / 1000 - time[1] * 1000 - time[2] / 1000
    local free = 'F' .. token .. ' ' .. ok .. '\0'
    local ms = ahead > 0 and string.format('%.0f', ahead + FLOOR) or FLOOR
    if redis.pcall('SET', KEYS[1], free, 'PX', ms).err then
      -- The memory is full: once a script has written what takes none, it may go on.
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('SET', KEYS[1], free, 'PX', ms)
    end
    return 1
  end
end

--include rows

local function releasable(lease)
  if not lease or lease.ended ~= 0 then return false end
  if ARGV[2] ~= '0' and tonumber(ARGV[2]) ~= lease.token then return false end
  return lease.expires > now or lease.opens <= now
end

local function release()
  local lease, grace = lease_of(ARGV[1]), tonumber(ARGV[3])
  if not releasable(lease) then
    -- Not the holder's (any more), but it may be what finds that a lease has lapsed.
    serve()
    return 0
  end
  if ARGV[4] == '1' then
    ok_token, changed = max(ok_token, lease.token), true
    dismiss_joiners()
  end
  if lease.claim then return leave(ARGV[1]) and 1 or 0 end
  local closed_until = max(grace > 0 and now + grace or 0, lease.opens)
  if closed_until > now then
    lease.ended, lease.expires, lease.opens = now, closed_until, 0
    put(lease)
    tell_everyone()
  else
    drop(lease)
  end
  serve()
  return 1
end

open(1)
lapse()
local freed = release()
close()
return answer(freed)
