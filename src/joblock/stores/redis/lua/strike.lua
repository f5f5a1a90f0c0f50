-- Passes over a waiter that is known to be dead, as if its claim had lapsed.
-- ARGV: holder.

--include rows

open(1)
local lease = lease_of(ARGV[1])
local struck = lease and lease.claim
if struck then
  lease.expires = now
  put(lease)
end
lapse()
serve()
close()
return answer(struck and 1 or 0)
