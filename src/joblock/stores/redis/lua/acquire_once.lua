-- As acquire, unless the occurrence is done: then the caller is queued no more, and has no claim.
-- KEYS: those of acquire, then what is done. ARGV: those of acquire, then the occurrence.

local occurrence, newest = ARGV[#ARGV], redis.call('GET', KEYS[7])
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
  return not granted and not joined
end

if newest and tonumber(occurrence) <= tonumber(newest) and refused() then
  return 'B0 done 0 0 0 '
end

--include acquire
