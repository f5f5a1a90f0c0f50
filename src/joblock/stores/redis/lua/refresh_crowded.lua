-- Renews leases of crowded keys; two letters each: renewed, and whether somebody waits.
-- ARGV: extend_only, then per key: holder, token (0: any), ttl.

--include rows

local extend_only = ARGV[1] == '1'

local function renewable(lease, wanted)
  if not lease or lease.claim or lease.ended ~= 0 then return false end
  return wanted == 0 or wanted == lease.token
end

local function extend(lease, ttl)
  lease.expires = extend_only and max(lease.expires, now + ttl) or now + ttl
end

-- A live lease needs no other row than its own, however many share the key.
local function renew_alone(first, holder, wanted, ttl)
  local row, LEASES = call('GET', KEYS[first]), KEYS[first + 1]
  local text = row and string.byte(row) == 67 and call('HGET', LEASES, holder)
  local lease = text and read_lease(text)
  if not lease or not renewable(lease, wanted) or lease.expires <= now then return false end
  extend(lease, ttl)
  if type(redis.pcall('HSET', LEASES, holder, write_lease(lease))) == 'table' then
    -- The memory is full: once a script has written what takes none, it may go on.
    call('PEXPIRE', LEASES, call('PTTL', LEASES))
    call('HSET', LEASES, holder, write_lease(lease))
  end
  local last = lease.expires - now + LINGER
  if call('PTTL', KEYS[first]) < last then
    for i = first, first + 5 do call('PEXPIRE', KEYS[i], format('%.0f', last)) end
  end
  return true
end

local function renew(first, holder, wanted, ttl)
  open(first)
  local lease = lease_of(holder)
  if not renewable(lease, wanted) then return false end
  if lease.expires <= now and (lease.opens > now or not fits(lease.weight, lease.limit, nil, lease)) then
    return false
  end
  extend(lease, ttl)
  put(lease)
  close()
  return true
end

local answers = {}
for i = 1, #KEYS / 6 do
  local first, holder = 6 * i - 5, ARGV[3 * i - 1]
  local wanted, ttl = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local renewed = renew_alone(first, holder, wanted, ttl) or renew(first, holder, wanted, ttl)
  local waiting = call('ZCOUNT', KEYS[first + 2], 0, '+inf') > 0
  answers[i] = (renewed and '1' or '0') .. (waiting and '1' or '0')
end
return table.concat(answers)
