-- When a session was used last, or until when it is in use. KEYS: places, uses, uses of the principal,
-- ages, how many of each revision. ARGV: the session, the moment, the net (ms). Answers 0 when it has no entry.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
for i = 1, 5 do
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
return 1
