-- ARGV 5: the name.
local it = look()
if not it or it.over then
  return false
end
return redis.call('HGET', KEYS[3], ARGV[5])
