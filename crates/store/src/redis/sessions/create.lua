-- ARGV 5, 6: opening, state. Answers 0 when there is one.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], 'o', ARGV[5], 'v', 1, 'st', ARGV[6], 'born', ARGV[1], 'seen', ARGV[1])
renew()
return 1
