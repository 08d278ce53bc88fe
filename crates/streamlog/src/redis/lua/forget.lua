-- Ends the session's streams: nothing begins any more, where anything has begun. What is left to be
-- removed.
-- KEYS: the session's log, what waits, its index. ARGV: me, tag, how long that is remembered
if redis.call('HEXISTS', KEYS[1], 'gone') == 1 then return {'GONE'} end
local questions, streams, told = {}, {}, {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
  local e = fields(entry)
  if e.k == '3' then questions[#questions + 1] = e.s end
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'm:' then streams[#streams + 1] = string.sub(field, 3) end
end
for one in string.gmatch(redis.call('HGET', KEYS[1], 'h') or '', '%S+') do
  local replica = string.match(one, '^.-:(.-):')
  if replica ~= ARGV[1] and not told[replica] then
    redis.call('PUBLISH', 'vestibule:r:' .. replica, 'G ' .. ARGV[2] .. ' - 0 ' .. ARGV[1])
    told[replica] = true
  end
end
if redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) > 0 then
  redis.call('HSET', KEYS[1], 'gone', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return {'OK', questions, streams}
