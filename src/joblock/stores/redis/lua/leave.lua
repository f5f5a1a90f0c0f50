-- Takes a holder out of the queue of the key, and out of any lease or claim it has there.
-- ARGV: holder.

--include rows

open(1)
lapse()
local left = leave(ARGV[1])
close()
return answer(left and 1 or 0)
