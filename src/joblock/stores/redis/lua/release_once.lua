-- As release; and remembers for a while the occurrence that ended well, if no later one did.
-- KEYS: those of release, then what is done. ARGV: those of release, then the occurrence, its ttl.

local function release_it()
--include release
end

local reply = release_it()
if reply == 1 or type(reply) == 'table' and reply[2] == 1 then
  local newest, till = string.match(redis.call('GET', KEYS[7]) or '', '^(%d+) (%d+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not newest or tonumber(ARGV[5]) >= tonumber(newest) or tonumber(till) <= now then
    -- It ends by itself, and says when: the end counts that is by the time that scripts go by.
    redis.call(
      'SET', KEYS[7], ARGV[5] .. ' ' .. string.format('%.0f', now + ARGV[6]), 'PX', ARGV[6]
    )
  end
end
return reply
