-- Reads the queue of a key: the moment, who is present, and the waiters (both as flat pairs).
-- KEYS: its row, its waiters, who is present.

local time = redis.call('TIME')
local now = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
local row = redis.call('GET', KEYS[1])
if not row or string.byte(row) ~= 67 then return {now, {}, {}} end
return {now, redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[2])}
