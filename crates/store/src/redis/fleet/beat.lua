-- This replica lives. KEYS: alive, own, inbox. ARGV: the number of this beat, the lease, the net (ms).
-- Answers with the number of the beat before: an older one than was acknowledged, or none, says that
-- the store has lost something.
local before = redis.call('GET', KEYS[1])
local number = ARGV[1]
if before and tonumber(before) > tonumber(number) then
  number = before
end
redis.call('SET', KEYS[1], number, 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return before
