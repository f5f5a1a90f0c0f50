-- As acquire, unless the occurrence is done: then the caller is queued no more, and has no claim.
-- KEYS: those of acquire, then what is done. ARGV: those of acquire, then the occurrence.

local function is_done(occurrence)
  local newest, till = string.match(redis.call('GET', KEYS[7]) or '', '^(%d+) (%d+)$')
  if not newest or tonumber(occurrence) > tonumber(newest) then return false end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) < tonumber(till)
end

local done = is_done(ARGV[#ARGV])
local ARGV = {unpack(ARGV, 1, #ARGV - 1)}

local function refused()
--include rows
  local holder, join = ARGV[1], tonumber(ARGV[12])
  open(1)
  lapse()
  local mine, waiter = lease_of(holder), waiter_of(holder)
  local claimed = mine and mine.claim
  local granted = mine and running(mine) and not claimed
  local joined = join and join > 0 and ok_token >= join and not claimed
  if not granted and not joined then
    if claimed then drop(mine) end
    if waiter then dequeue(waiter) end
    serve(nil, nil, waiter ~= nil)
  end
  close()
  if not granted and not joined then return answer('B0 done 0 0 0 ') end
end

local refusal = done and refused()
if refusal then return refusal end

--include acquire
