-- Renews leases of keys that nobody waits for; one letter each: 1 renewed, 0 refused, or C: the key
-- is crowded, ask refresh_crowded.
-- KEYS: the rows. ARGV: extend_only, then per row: holder, token (0: any), ttl.

local call, match, format, floor = redis.call, string.match, string.format, math.floor
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

local function renew(key, row, mine, token, ttl)
  local head, lease_token, acquired, expires, opens, ended, rest, holder, tail = match(
    row, '^(L%d+ %d+%z)(%d+) (%d+) (%d+) (%d+) (%d+) (%d+ %d+ 0)%z([^%z]*)%z(.*)$'
  )
  expires, opens = tonumber(expires), tonumber(opens)
  if holder ~= mine or ended ~= '0' or token ~= '0' and token ~= lease_token then return '0' end
  if expires <= now and opens > now then return '0' end
  local till = now + ttl
  if extend_only and expires > till then till = expires end
  set(
    key,
    head .. format('%s %s %.0f %.0f 0 ', lease_token, acquired, till, opens) .. rest
      .. '\0' .. holder .. '\0' .. tail,
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
