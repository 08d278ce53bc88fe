-- A session is no more. KEYS: places, ages, uses, uses of the principal, how many of each revision.
-- ARGV: the session, its place.
local there = redis.call('HGET', KEYS[1], ARGV[1])
if not there or string.sub(there, 1, #ARGV[2]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
local revision = string.sub(there, #ARGV[2] + 1)
if redis.call('HINCRBY', KEYS[5], revision, -1) < 1 then
  redis.call('HDEL', KEYS[5], revision)
end
for i = 2, 4 do
  redis.call('ZREM', KEYS[i], ARGV[1])
end
return 1
