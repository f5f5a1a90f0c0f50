-- Breaks every lease of the key, whoever holds it, and passes the key on.
-- ARGV: by, why; they are kept with the row. Replies: the moment, then the leases broken.

--include rows

open(1)
lapse()
local broken = {format('%.0f', now)}
for i, lease in ipairs(leases) do broken[i + 1] = write_lease(lease) end
while leases[1] do drop(leases[1]) end
if token > 0 then
  audit = ARGV[1] .. '\0' .. ARGV[2] .. '\0' .. format('%.0f', now)
  changed = true
end
serve()
close()
return answer(broken)
