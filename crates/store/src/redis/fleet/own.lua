-- KEYS: own. ARGV: the name, how many there may be, the net (ms). Answers 0 when there is no room.
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return redis.call('SISMEMBER', KEYS[1], ARGV[1])
end
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
