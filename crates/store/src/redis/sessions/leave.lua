-- A session is no more. KEYS: places, ages, uses, uses of the principal. ARGV: the session, its place.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
for i = 2, 4 do
  redis.call('ZREM', KEYS[i], ARGV[1])
end
return 1
