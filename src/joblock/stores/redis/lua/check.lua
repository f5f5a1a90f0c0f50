-- A waiting client reports, and asks how its keys stand.
-- ARGV: client, listening. Replies per key: {"epoch lapses_in ok_token grace", claimed holders...}.

--include rows

local client, listening = ARGV[1], tonumber(ARGV[2])

local function check(first)
  open(first)
  -- In this order: a claim of its own that lapses here is told by a new epoch.
  lapse()
  local epoch = report(client, listening)
  serve(nil, client)
  local lapses, grace, claimed = nil, false, {}
  for _, lease in ipairs(leases) do
    local at = ends(lease)
    if at > now and (not lapses or at < lapses) then lapses = at end
    grace = grace or in_grace(lease)
    if lease.claim and lease.client == client then claimed[#claimed + 1] = lease end
  end
  table.sort(claimed, function(a, b) return a.token < b.token end)
  local state = {
    format('%.0f %.0f %.0f %d', epoch, lapses and lapses - now or 0, ok_token, grace and 1 or 0)
  }
  for _, lease in ipairs(claimed) do state[#state + 1] = lease.holder end
  close()
  return state
end

local states = {}
for i = 1, #KEYS / 6 do states[i] = check(6 * i - 5) end
return answer(states)
