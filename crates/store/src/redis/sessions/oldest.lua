-- KEYS: places, ages. ARGV: from, to. The sessions in order of age, each with its place.
local ids, found = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2]), {}
for i = 1, #ids do
  found[2 * i - 1] = ids[i]
  found[2 * i] = redis.call('HGET', KEYS[1], ids[i]) or ''
end
return found
