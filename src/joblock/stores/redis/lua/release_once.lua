-- As release; and remembers for a while the occurrence that ended well, if no later one did.
-- KEYS: those of release, then what is done. ARGV: those of release, then the occurrence, its ttl.

local function release_it()
--include release
end

local freed = release_it()
if freed == 1 then
  local newest = redis.call('GET', KEYS[7])
  if not newest or tonumber(ARGV[5]) >= tonumber(newest) then
    redis.call('SET', KEYS[7], ARGV[5], 'PX', ARGV[6])
  end
end
return freed
