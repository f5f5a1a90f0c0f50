-- Reads the leases of keys: the moment, then per key the list of its leases.
-- KEYS: per key its row and its leases.

local time = redis.call('TIME')
local found = {string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))}
for i = 1, #KEYS, 2 do
  local row, leases = redis.call('GET', KEYS[i]), {}
  local kind = row and string.byte(row)
  if kind == 67 then
    leases = redis.call('HVALS', KEYS[i + 1])
  elseif kind == 76 then
    leases = {string.match(row, '%z(.*)$')}
  end
  found[#found + 1] = leases
end
return found
