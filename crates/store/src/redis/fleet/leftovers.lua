-- KEYS: alive, claim, inbox. ARGV: who asks, how long they are his (ms), how many.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {}
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  return {}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', ARGV[3])
