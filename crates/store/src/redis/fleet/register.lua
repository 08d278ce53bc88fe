-- This replica is one of the fleet, and the store is there. KEYS: replicas, since, young. ARGV: the
-- replica, now, how long one that says nothing is remembered, how long nobody may have come, the lease;
-- all in ms. Answers 1 when somebody has come all the time, for a whole lease at least: whoever has let
-- its lease run out meanwhile could have renewed it.
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (tonumber(ARGV[2]) - tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if redis.call('PEXPIRE', KEYS[2], ARGV[4]) == 1 then
  return 1 - redis.call('EXISTS', KEYS[3])
end
redis.call('SET', KEYS[2], 1, 'PX', ARGV[4])
redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])
return 0
