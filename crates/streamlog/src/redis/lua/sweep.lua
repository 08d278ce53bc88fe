-- Removes streams of a session that has ended; their replicas are told.
-- KEYS: stream and events of each. ARGV: me, tag
local told = {}
for i = 1, #KEYS, 2 do
  for _, replica in ipairs(redis.call('HMGET', KEYS[i], 'o', 'r')) do
    if replica and replica ~= ARGV[1] and not told[replica] then
      redis.call('PUBLISH', 'vestibule:r:' .. replica, 'G ' .. ARGV[2] .. ' - 0 ' .. ARGV[1])
      told[replica] = true
    end
  end
  redis.call('DEL', KEYS[i], KEYS[i + 1])
end
return 1
