-- Renews leases of keys that nobody waits for; one letter each: 1 renewed, 0 refused, or C: the key
-- is crowded, ask refresh_crowded.
-- KEYS: the rows. ARGV: extend_only, then per row: holder, token (0: any), ttl.

local call, match, sub = redis.call, string.match, string.sub
local format, floor = string.format, math.floor
local time = call('TIME')
local now = floor((time[1] * 1000000 + time[2]) / 1000)
local extend_only = ARGV[1] == '1'
local answers = {}

-- Also where the memory is full: once a script has written what takes none, it may go on.
local function set(key, row, ms)
  if redis.pcall('SET', key, row, 'PX', ms).err then
    call('PEXPIRE', key, ms)
    call('SET', key, row, 'PX', ms)
  end
end

-- Of the row nothing changes but one number: so it is cut there, and the rest is not read.
local function renew(key, row, mine, token, ttl)
  local lease_token, from, expires, to, opens, ended, holder_at = match(
    row, '^L%d+ %d+%z(%d+) %d+ ()(%d+)() (%d+) (%d+) %d+ %d+ 0%z()'
  )
  if ended ~= '0' or token ~= '0' and token ~= lease_token
    or sub(row, holder_at, holder_at + #mine) ~= mine .. '\0' then
    return '0'
  end
  expires, opens = tonumber(expires), tonumber(opens)
  if expires <= now and opens > now then return '0' end
  local till = now + ttl
  if extend_only and expires > till then till = expires end
  set(
    key,
    sub(row, 1, from - 1) .. format('%.0f', till) .. sub(row, to),
    format('%.0f', math.max(till, opens) - now + LINGER)
  )
  return '1'
end

for i, key in ipairs(KEYS) do
  local row = call('GET', key)
  local kind = row and string.byte(row)
  if kind == 76 then
    answers[i] = renew(key, row, ARGV[3 * i - 1], ARGV[3 * i], tonumber(ARGV[3 * i + 1]))
  else
    answers[i] = kind == 67 and 'C' or '0'
  end
end
return table.concat(answers)
