-- KEYS: alive, inbox. ARGV: the command, the channel, the hint, how many may wait, the net (ms).
-- Answers 1, or 0 when nobody would read it, or -1 when there is no room.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[4]) then
  return -1
end
redis.call('XADD', KEYS[2], '*', 'c', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
