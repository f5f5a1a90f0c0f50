-- The given commands, unless a newer holder has written: {1, reply...} or {0, newest token}.
-- KEYS: the fence, then the key of each command. ARGV: the token, then for each command the number
-- of its parts and the parts. Tokens are below 2^53, so a Lua number holds them exactly.
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) > tonumber(ARGV[1]) then
    return {0, newest}
end
redis.call('SET', KEYS[1], ARGV[1])
local replies, at = {1}, 2
while at <= #ARGV do
    local last = at + tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, last))
    at = last + 1
end
return replies
